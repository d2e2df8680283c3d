"""Ranks of a layer's weights, from their singular values.

    Nakajima, Sugiyama, Babacan, Tomioka: *Global Analytic Solution of Fully-Observed Variational
    Bayesian Matrix Factorization*, JMLR 14, 2013; in Python: github.com/CasvandenBogaard/VBMF.
    Roy, Vetterli: *The Effective Rank*, EUSIPCO 2007. Hosseini, Tuli, Plataniotis: *Exploiting Explainable
    Metrics for Augmented SGD*, CVPR 2022 (unfoldings, knowledge gain).

A trained weight is a low-rank signal plus the noise of its initialisation. EVBMF finds the variance of
the noise, drops every singular value that noise alone explains, and shrinks the others. The ranks below
are statistics of what is left, and 0 where nothing is left (a fresh layer).

With Y = [L, M], L <= M, a = L/M and e_h = s_h^2 / M, the noise variance v minimises over an interval

    sum_h psi(e_h / v),    psi(x) = x - ln x                                              if x <= x*
                                    1 + a + a/tau + ln(tau/(tau+a)) + a ln(1 + tau/a)     otherwise

(the paper's terms, in which x has been replaced by (tau+1)(tau+a)/tau: nothing large cancels). There
are local minima, and the published code's search stops in one of them or, on small weights, at its
absolute tolerance. Here the whole interval is searched, on a logarithmic grid that zooms in.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .arrays import to_float64
from .checks import require

Matrix = Tensor | NDArray[np.floating[Any]]
Mode = Literal["out", "in"]

GRID_SIZE = 1024  # a grid of 256 missed the lowest minimum of 5 matrices of 800, this one of none
NUM_ZOOMS = 3  # the noise variance is then found to 1e-6 relative: rounding hides the rest


def effective_rank(matrix: Matrix) -> float:
    """Return -sum p ln p of the shrunk singular values p = d / sum d: their entropy in nats.

    Thesis eq. 2.9, whose minus sign is lost in print. Roy and Vetterli's effective rank is exp of it.
    """
    _, shrunk = evbmf(matrix)
    return float(torch.special.entr(shrunk / shrunk.sum()).sum())


def stable_rank(matrix: Matrix) -> float:
    """Return sum d^2 / max d^2 of the shrunk singular values (Rudelson, Vershynin 2007).

    The thesis' appendix A gives no formula. Compare :func:`knowledge_gain`.
    """
    _, shrunk = evbmf(matrix)
    return float((shrunk / shrunk[:1]).square().sum())


def knowledge_gain(matrix: Matrix) -> float:
    """Return sum d / max d of the shrunk singular values per row: RMSGD's "stable rank", in [0, 1]."""
    _, shrunk = evbmf(matrix)
    return float((shrunk / shrunk[:1]).sum()) / len(matrix)


def condition_number(matrix: Matrix) -> float:
    """Return max d / min d of the shrunk singular values, as AdaS defines it (Hosseini, Plataniotis 2022).

    It says how far the layer magnifies a perturbation of its input; 1 of a single value, 0 where none is left.
    """
    _, shrunk = evbmf(matrix)
    return float(shrunk[0] / shrunk[-1]) if len(shrunk) else 0.0


def noise_share(matrix: Matrix) -> float:
    """Return the share of a weight's squared norm that is noise, L M v / ||Y||^2, in [0, 1].

    v is the noise variance of EVBMF. It is 1 where nothing has been learnt, and 0 of a zero matrix.
    """
    variances, small, _ = _spectrum(matrix)
    total = float(variances.sum())
    return evbmf(matrix)[0] * small / total if total else 0.0


def unfold(weight: Tensor, mode: Mode) -> Tensor:
    """Return a convolution's weight [out, in, kh, kw] as a matrix, one row per channel.

    ``mode="out"`` is the mode-4 unfolding [out, in*kh*kw], ``"in"`` the mode-3 one [in, out*kh*kw].
    """
    return (weight if mode == "out" else weight.transpose(0, 1)).flatten(1)


def mean_over_unfoldings(
    measure: Callable[[Tensor], float], weights: Sequence[Tensor], modes: Sequence[Mode] = ("out", "in")
) -> list[float]:
    """Return the mean of ``measure`` over the unfoldings of each convolution's weight.

    The weights are shared among as many threads as there are processors; torch lets go of Python's
    lock in the products and eigenvalues that take the time. The result does not depend on the threads.
    """

    def measured(weight: Tensor) -> float:
        return math.fsum(measure(unfold(weight, mode)) for mode in modes) / len(modes)

    before = torch.get_num_threads()
    workers = ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,))
    try:
        with workers as pool:
            return list(pool.map(measured, weights))
    finally:
        torch.set_num_threads(before)  # for threads started later; this one has kept its own


def evbmf(matrix: Matrix) -> tuple[float, Tensor]:
    """Factorise by empirical variational Bayes, for the singular values alone.

    Parameters
    ----------
    matrix : [rows, columns], a tensor or an array of any floating type

    Returns
    -------
    The noise variance, and the shrunk singular values in float64, largest first. A zero matrix gives 0
    and none; a single row or column, whose noise cannot be told from its signal, gives none.
    """
    variances, small, large = _spectrum(matrix)
    aspect, scale = small / large, float(variances.mean())
    if scale == 0.0:
        return 0.0, variances[:0]
    variances /= scale
    noise = _noise_variance(variances, aspect)
    x = variances[variances > noise * _threshold(aspect)] / noise
    values = (large * scale * noise * x).sqrt()
    return scale * noise, values * _tau(x, aspect) / x


def _spectrum(matrix: Matrix) -> tuple[Tensor, int, int]:
    """Return s^2 / M of the singular values s, largest first, and L <= M, the sides of the matrix.

    They are the eigenvalues of the smaller Gram matrix in float64: fifty times as fast as the singular
    values, and equal to 1e-16 of the largest. What lies below that is raised to it.
    """
    require(matrix.ndim == 2, "matrix.ndim", matrix.ndim, "2 (see strategies.shared.linalg.unfold)")
    wide = to_float64(torch.as_tensor(matrix).detach())
    small, large = sorted(wide.shape)
    wide = wide if len(wide) == small else wide.T
    eigenvalues = torch.linalg.eigvalsh((wide @ wide.T).cpu()).flip(0)
    floor = float(eigenvalues[0]) * torch.finfo(torch.float64).eps
    return eigenvalues.clamp_min(floor) / large, small, large


def _noise_variance(variances: Tensor, aspect: float) -> float:
    """Return the v that minimises the objective; ``variances`` e have mean 1 and fall."""
    first = math.ceil(len(variances) / (1 + aspect)) - 1
    low = max(float(variances[first]) / _threshold(aspect), float(variances[first:].mean()))
    ends = (min(math.log(low), 0.0), 0.0)
    for _ in range(NUM_ZOOMS):
        grid = torch.linspace(*ends, GRID_SIZE, dtype=torch.float64)
        best = int(_objective(grid.exp(), variances, aspect).argmin())
        ends = (float(grid[max(best - 1, 0)]), float(grid[min(best + 1, GRID_SIZE - 1)]))
    return math.exp(float(grid[best]))


def _objective(noise: Tensor, variances: Tensor, aspect: float) -> Tensor:
    """Return sum_h psi(e_h / v) for each v in ``noise``, which rises."""
    threshold = _threshold(aspect)
    above = variances > threshold * noise[0]  # the others are never above: their sum is closed
    rest = variances[~above]
    x = variances[above, None] / noise
    tau = _tau(x.clamp_min(threshold), aspect)
    signal = 1 + aspect + aspect / tau + (tau / (tau + aspect)).log() + aspect * (tau / aspect).log1p()
    terms = torch.where(x > threshold, signal, x - x.log()).sum(0)
    return terms + rest.sum() / noise - rest.log().sum() + len(rest) * noise.log()


def _tau(x: Tensor, aspect: float) -> Tensor:
    """Return the larger root of (tau + 1)(tau + a) / tau = x."""
    middle = x - (1 + aspect)
    return (middle + (middle.square() - 4 * aspect).sqrt()) / 2


def _threshold(aspect: float) -> float:
    """Return x*, above which a singular value is more than noise (the paper's approximation)."""
    root = 2.5129 * math.sqrt(aspect)
    return (1 + root) * (1 + aspect / root)
