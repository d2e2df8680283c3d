"""The biased compressions, which need error feedback: the largest places, and signs.

Karimireddy, Rebjock, Stich, Jaggi: *Error Feedback Fixes SignSGD and other Gradient Compression Schemes*,
ICML 2019. Each array of the model is compressed by itself.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .compression import Compression, Shape, require_length
from .sketches import Sparse, largest


@dataclass(frozen=True)
class TopK(Sparse):
    """The places with the largest numbers, by magnitude; of equal ones the first.

    The places are sent as a bitmap or as 32 bits each, whichever is shorter. Without error feedback small
    numbers never arrive (Karimireddy et al. 2019, section 4). Reduction: that of
    :class:`~strategies.shared.sketches.Sketch`.
    """

    share: float = 0.01
    error_feedback: bool = True
    kind: ClassVar[str] = "top-k"

    def places(self, values: np.ndarray, count: int, seed: int) -> np.ndarray:
        return largest(np.abs(values), count)

    def code_of(self, places: np.ndarray, size: int, seed: int) -> bytes:
        if _as_bitmap(size, len(places)):
            flags = np.zeros(size, bool)
            flags[places] = True
            return np.packbits(flags).tobytes()
        return places.astype("<u4").tobytes()

    def places_in(self, code: bytes, size: int, count: int) -> tuple[np.ndarray, bytes]:
        if _as_bitmap(size, count):
            end = -(-size // 8)
            head = np.frombuffer(require_length(code[:end], end), np.uint8)
            places = np.flatnonzero(np.unpackbits(head, count=size))
        else:
            end = 4 * count
            places = np.frombuffer(require_length(code[:end], end), "<u4").astype(np.int64)
        if len(places) != count or places[-1] >= size or bool((np.diff(places) <= 0).any()):
            raise ValueError(f"places that are not {count} of {size}, ascending")
        return places, code[end:]


@dataclass(frozen=True)
class ScaledSign(Compression):
    """One bit for each number, its sign, and their mean magnitude: C(p) = (||p||_1 / n) sign(p).

    Karimireddy et al. 2019, Algorithm 1 (EF-signSGD), array by array. A 0 has either sign, at random: what
    no node moves stays, in expectation. Reduction: numbers of one magnitude arrive as they are.

    Parameters
    ----------
    error_feedback : the node keeps what was left out; without it small numbers are made larger for good
    """

    error_feedback: bool = True
    kind: ClassVar[str] = "scaled-sign"

    def encode(self, values: np.ndarray, seed: int) -> bytes:
        magnitude = np.abs(values).mean(dtype=np.float64) if values.size else 0.0
        positive, zeros = values > 0, values == 0
        positive[zeros] = np.random.PCG64(seed).random_raw(int(zeros.sum())) >> np.uint64(63) == 1
        return np.array([magnitude], values.dtype).tobytes() + np.packbits(positive).tobytes()

    def decode(self, code: bytes, shape: Shape, dtype: np.dtype) -> np.ndarray:
        size = math.prod(shape)
        require_length(code, dtype.itemsize + -(-size // 8))
        magnitude = np.frombuffer(code[: dtype.itemsize], dtype)[0]
        flags = np.unpackbits(np.frombuffer(code[dtype.itemsize :], np.uint8), count=size)
        return np.where(flags == 1, magnitude, -magnitude).astype(dtype).reshape(shape)


def _as_bitmap(size: int, count: int) -> bool:
    """Say whether a bit for each place takes no more room than 32 bits for each that is sent."""
    return -(-size // 8) <= 4 * count
