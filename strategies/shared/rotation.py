"""Rotation: a random orthogonal map, fast to apply, that makes all numbers about equally large.

Konecny, McMahan, Yu, Richtarik, Suresh, Bacon: *Federated Learning: Strategies for Improving Communication
Efficiency*, 2016, section 3, "structured random rotations": y = H D x. D are random signs, H is the
Walsh-Hadamard matrix divided by the root of its size, which is a power of two. An array of another size is
cut into powers of two, the largest first, and each is rotated by itself: nothing is padded.
"""

from collections.abc import Iterator

import numpy as np

SIGNS = 17  # beside the seed: rounding has its bits there, 1 to 16, places nothing, to NumPy a 0


def rotated(values: np.ndarray, seed: int) -> np.ndarray:
    """Return y = H D x of the values x [n]; its length is that of x."""
    turned = values * _signs(len(values), seed)
    for block in _blocks(len(values)):
        turned[block] = _hadamard(turned[block])
    return turned.astype(values.dtype)


def unrotated(values: np.ndarray, seed: int) -> np.ndarray:
    """Return x = D H y of the values y [n], to rounding what ``rotated`` had."""
    turned = values.astype(np.float64)
    for block in _blocks(len(values)):
        turned[block] = _hadamard(turned[block])
    return (turned * _signs(len(values), seed)).astype(values.dtype)


def _signs(size: int, seed: int) -> np.ndarray:
    """Return -1 or 1 [n], by bits that NumPy promises for all of its versions."""
    bits = np.random.PCG64([seed, SIGNS]).random_raw(size) >> np.uint64(63)
    return 1.0 - 2.0 * bits


def _blocks(size: int) -> Iterator[slice]:
    """Yield slices of 0 ... size - 1 whose lengths are powers of two."""
    start = 0
    for power in reversed(range(size.bit_length())):
        if size >> power & 1:
            yield slice(start, start + 2**power)
            start += 2**power


def _hadamard(values: np.ndarray) -> np.ndarray:
    """Return H x, of a power of two of values, by sums and differences of halves."""
    size, half = len(values), 1
    while half < size:
        pairs = values.reshape(size // (2 * half), 2, half)
        left, right = pairs[:, 0], pairs[:, 1]
        values = np.stack([left + right, left - right], axis=1).ravel()
        half *= 2
    return values / np.sqrt(size)
