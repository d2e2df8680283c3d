"""Ranks of weight matrices: analytic variational Bayes, effective rank, stable rank.

A trained layer is a low-rank map plus the noise of its initialisation. Empirical variational Bayes matrix
factorisation (EVBMF) estimates the noise variance and keeps the singular values that stand out:
Nakajima, Sugiyama, Babacan, Tomioka: *Global Analytic Solution of Fully-Observed Variational Bayesian
Matrix Factorization*, JMLR 14, 2013, section 6. The effective rank is the entropy of those (Roy and
Vetterli, EUSIPCO 2007), without the exponential, as in the thesis on FedER (eq. 2.9, whose minus sign is
missing in print).
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor


def singular_values(matrix: Tensor) -> np.ndarray:
    """Return the singular values of a matrix in descending order, in float64.

    They are the roots of the eigenvalues of the smaller Gram matrix: forty times cheaper than an SVD
    of a wide matrix, and good to about 1e-8 of the largest one, far below the noise level.
    """
    wide = matrix.double() if matrix.shape[0] <= matrix.shape[1] else matrix.double().T
    eigenvalues = torch.linalg.eigvalsh(wide @ wide.T)
    return eigenvalues.clamp_min(0).sqrt().flip(0).numpy()


def evbmf(matrix: Tensor) -> tuple[float, np.ndarray]:
    """Return the noise variance and the shrunk singular values above the noise, descending.

    ``matrix`` is [rows, columns]. A zero matrix has noise variance 0 and keeps nothing; a single row or
    column has no noise to tell from, and keeps nothing either.
    """
    return _shrink(singular_values(matrix), min(matrix.shape), max(matrix.shape))


def effective_rank(matrix: Tensor) -> float:
    """Return -sum p ln p of the shrunk singular values d, p = d / sum d; 0 when nothing is kept.

    In nats; at most the logarithm of the rank. It does not change when the matrix is scaled or transposed.
    """
    _, kept = evbmf(matrix)
    p = kept / kept.sum() if len(kept) else kept
    return float(-(p * np.log(p)).sum()) + 0.0  # not -0.0


def stable_rank(matrix: Tensor) -> float:
    """Return sum d^2 / max d^2 of the shrunk singular values d; 0 when nothing is kept."""
    _, kept = evbmf(matrix)
    return float((kept**2).sum() / kept[0] ** 2) if len(kept) else 0.0


def unfold(weight: Tensor, mode: str) -> Tensor:
    """Return a convolution's weight [out, in, height, width] as a matrix.

    Mode ``out`` gives [out, in * height * width], mode ``in`` [in, out * height * width].
    """
    rows = {"out": weight, "in": weight.transpose(0, 1)}[mode]
    return rows.reshape(rows.shape[0], -1)


def in_parallel(rank: Callable[[Tensor], float], matrices: Sequence[Tensor]) -> list[float]:
    """Return the rank of each matrix, on all processors: LAPACK works outside Python's lock."""
    workers = ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,))
    with workers as pool:
        return list(pool.map(rank, matrices))


def _shrink(s: np.ndarray, rows: int, columns: int) -> tuple[float, np.ndarray]:
    """EVBMF from singular values [rows], rows <= columns."""
    if s[0] == 0 or rows == 1:
        return (float(s[0] ** 2 / columns) if rows == 1 else 0.0), s[:0]
    from scipy.optimize import minimize_scalar  # takes half a second, and few runs need it

    alpha = rows / columns
    tau_bar = 2.5129 * np.sqrt(alpha)
    x_bar = (1 + tau_bar) * (1 + alpha / tau_bar)
    upper = (s**2).sum() / (rows * columns)
    scale = np.sqrt(upper)  # on a problem of unit noise the search's tolerance is relative
    unit = s / scale
    k = min(int(np.ceil(rows / (1 + alpha))) - 1, rows) - 1
    tail = unit[k + 1 :] ** 2
    lower = max(tail[0] / (columns * x_bar), tail.mean() / columns) if len(tail) else 0.0
    found = minimize_scalar(
        _free_energy,
        args=(unit, rows, columns, x_bar),
        bounds=(lower, 1.0),
        method="bounded",
        options={"xatol": 1e-12, "maxiter": 500},
    )
    noise = float(found.x) * upper
    kept = s[s > np.sqrt(columns * noise * x_bar)]
    ratio = 1 - (rows + columns) * noise / kept**2
    root = np.sqrt(ratio**2 - 4 * rows * columns * noise**2 / kept**4)
    return noise, kept / 2 * (ratio + root)


def _free_energy(noise: float, s: np.ndarray, rows: int, columns: int, x_bar: float) -> float:
    """Return the free energy of a noise variance, up to a constant (JMLR 14, eq. 36)."""
    alpha = rows / columns
    x = s**2 / (columns * noise)
    small, large = x[x <= x_bar], x[x > x_bar]
    shifted = large - (1 + alpha)
    tau = 0.5 * (shifted + np.sqrt(shifted**2 - 4 * alpha))
    return float(
        (small - np.log(small)).sum()
        + (large - tau + np.log((tau + 1) / large) + alpha * np.log(tau / alpha + 1)).sum()
    )
