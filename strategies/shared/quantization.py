"""Quantization: numbers in a few bits each.

Konecny, McMahan, Yu, Richtarik, Suresh, Bacon: *Federated Learning: Strategies for Improving Communication
Efficiency*, 2016, section 3, "probabilistic quantization". With b bits there are 2^b levels from the least
number to the largest; each number is rounded up or down at random, so that its expectation is itself.
(The paper speaks of 2^b intervals, which would have one level more than b bits can name.) Numbers of equal
size lose least by it, so a rotation can come before it.
"""

from collections.abc import Iterator

import numpy as np

from .compression import prepend_seed, require_length, split_seed

# Rotation: a random orthogonal map, fast to apply, that makes all numbers about equally large.
#
# Konecny, McMahan, Yu, Richtarik, Suresh, Bacon: *Federated Learning: Strategies for Improving Communication
# Efficiency*, 2016, section 3, "structured random rotations": y = H D x. D are random signs, H is the
# Walsh-Hadamard matrix divided by the root of its size, which is a power of two. An array of another size is cut
# into powers of two, the largest first, and each is rotated by itself: nothing is padded.


SIGN_STREAM = (
    17  # beside the seed; rounding has its bits there, 1 to 16, places nothing, which NumPy reads as 0
)


def rotate_values(values: np.ndarray, seed: int) -> np.ndarray:
    """Return y = H D x of the values x [n]; its length is that of x."""
    turned = values * _signs(len(values), seed)
    for block in _blocks(len(values)):
        turned[block] = _hadamard(turned[block])
    return turned.astype(values.dtype)


def unrotate_values(values: np.ndarray, seed: int) -> np.ndarray:
    """Return x = D H y of the values y [n], to rounding what ``rotate_values`` had."""
    turned = values.astype(np.float64)
    for block in _blocks(len(values)):
        turned[block] = _hadamard(turned[block])
    return (turned * _signs(len(values), seed)).astype(values.dtype)


def _signs(size: int, seed: int) -> np.ndarray:
    """Return -1 or 1 [n], by bits that NumPy promises for all of its versions."""
    bits = np.random.PCG64([seed, SIGN_STREAM]).random_raw(size) >> np.uint64(63)
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


MAX_BITS = 16


@np.errstate(all="ignore")  # what is not finite stays so, and the server finds it
def quantize(values: np.ndarray, bits: int | None, seed: int, *, rotate: bool = False) -> bytes:
    """Return numbers [n] as the least and the largest of them and ``bits`` each; None: as they are."""
    if rotate:
        return prepend_seed(seed, quantize(rotate_values(values, seed), bits, seed))
    if bits is None:
        return values.tobytes()
    if len(values) == 0:
        return b""
    low, high = values.min(), values.max()
    step = _level_width(low, high, bits)
    draws = np.random.default_rng([seed, bits]).random(len(values))  # not those of the places
    levels = np.floor((values - np.float64(low)) / (step or 1.0) + draws) if step else np.zeros(len(values))
    whole = np.minimum(levels, 2**bits - 1).astype("<u4")
    return np.array([low, high], values.dtype).tobytes() + np.packbits(_pack_bits(whole, bits)).tobytes()


@np.errstate(all="ignore")
def dequantize(
    code: bytes, count: int, bits: int | None, dtype: np.dtype, *, rotate: bool = False
) -> np.ndarray:
    """Return ``count`` numbers of a dtype; raise ``ValueError`` for bytes that do not encode them."""
    if rotate:
        seed, rest = split_seed(code)
        return unrotate_values(dequantize(rest, count, bits, dtype), seed)
    if bits is None:
        return np.frombuffer(require_length(code, count * dtype.itemsize), dtype)
    if count == 0:
        return np.frombuffer(require_length(code, 0), dtype)
    head = 2 * dtype.itemsize
    require_length(code, head + -(-count * bits // 8))
    low, high = np.frombuffer(code[:head], dtype)
    flags = np.unpackbits(np.frombuffer(code[head:], np.uint8), count=count * bits)
    levels = flags.reshape(count, bits) @ (1 << np.arange(bits))
    return (np.float64(low) + levels * _level_width(low, high, bits)).astype(dtype)


def _level_width(low: np.floating, high: np.floating, bits: int) -> float:
    """Return how far the levels are apart; 0 where there is one number alone."""
    return float((np.float64(high) - np.float64(low)) / (2**bits - 1)) if high != low else 0.0


def _pack_bits(levels: np.ndarray, bits: int) -> np.ndarray:
    return ((levels[:, None] >> np.arange(bits, dtype="<u4")) & 1).astype(bool)
