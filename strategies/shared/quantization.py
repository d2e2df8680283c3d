"""Quantization: numbers in a few bits each.

Konecny, McMahan, Yu, Richtarik, Suresh, Bacon: *Federated Learning: Strategies for Improving Communication
Efficiency*, 2016, section 3, "probabilistic quantization". Of b bits there are 2^b levels from the least
number to the largest; each number is rounded up or down at random, so that its expectation is itself.
(The paper speaks of 2^b intervals, which would have one level more than b bits can name.) Numbers of equal
size lose least by it, which is what a rotation before it is for.
"""

import numpy as np

from .compression import after_seed, require_length, seed_and_rest
from .rotation import rotated, unrotated

MOST_BITS = 16


@np.errstate(all="ignore")  # what is not finite stays so, and the server finds it
def quantized(values: np.ndarray, bits: int | None, seed: int, *, rotate: bool = False) -> bytes:
    """Return numbers [n] as the least and the largest of them and ``bits`` each; None: as they are."""
    if rotate:
        return after_seed(seed, quantized(rotated(values, seed), bits, seed))
    if bits is None:
        return values.tobytes()
    if len(values) == 0:
        return b""
    low, high = values.min(), values.max()
    step = _step(low, high, bits)
    draws = np.random.default_rng([seed, bits]).random(len(values))  # not those of the places
    levels = np.floor((values - np.float64(low)) / (step or 1.0) + draws) if step else np.zeros(len(values))
    whole = np.minimum(levels, 2**bits - 1).astype("<u4")
    return np.array([low, high], values.dtype).tobytes() + np.packbits(_bits_of(whole, bits)).tobytes()


@np.errstate(all="ignore")
def numbers(
    code: bytes, count: int, bits: int | None, dtype: np.dtype, *, rotate: bool = False
) -> np.ndarray:
    """Return so many numbers of a dtype; raise ``ValueError`` for bytes that are none."""
    if rotate:
        seed, rest = seed_and_rest(code)
        return unrotated(numbers(rest, count, bits, dtype), seed)
    if bits is None:
        return np.frombuffer(require_length(code, count * dtype.itemsize), dtype)
    if count == 0:
        return np.frombuffer(require_length(code, 0), dtype)
    head = 2 * dtype.itemsize
    require_length(code, head + -(-count * bits // 8))
    low, high = np.frombuffer(code[:head], dtype)
    flags = np.unpackbits(np.frombuffer(code[head:], np.uint8), count=count * bits)
    levels = flags.reshape(count, bits) @ (1 << np.arange(bits))
    return (np.float64(low) + levels * _step(low, high, bits)).astype(dtype)


def _step(low: np.floating, high: np.floating, bits: int) -> float:
    """Return how far the levels are apart; 0 where there is one number alone."""
    return float((np.float64(high) - np.float64(low)) / (2**bits - 1)) if high != low else 0.0


def _bits_of(levels: np.ndarray, bits: int) -> np.ndarray:
    return ((levels[:, None] >> np.arange(bits, dtype="<u4")) & 1).astype(bool)
