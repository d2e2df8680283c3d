"""The unbiased compressions: random places, and few bits for each number.

Konecny, McMahan, Yu, Richtarik, Suresh, Bacon: *Federated Learning: Strategies for Improving Communication
Efficiency*, 2016, sections 2 and 3. Each array of the model is compressed by itself, as is each matrix
there. Buffers are sent as they are. Not built: low rank, and rotations before the quantization.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .checks import require
from .compression import Compression
from .quantization import MOST_BITS, numbers, quantized

SEED_BYTES = 8


@dataclass(frozen=True)
class Sparse(Compression):
    """A share of each array's places is sent; the server takes the others for 0.

    Parameters
    ----------
    share : of the places, in (0, 1]; at least one
    bits : for each number, 1 to 16 (:mod:`.quantization`); None sends it as it is
    error_feedback : the node keeps what was left out for its next update
    """

    share: float = 1.0
    bits: int | None = None
    error_feedback: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no share, and bits that none or that error feedback would let grow."""
        require(0 < self.share <= 1, "compression.share", self.share, "in (0, 1]")
        whole = type(self.bits) is int and 1 <= self.bits <= MOST_BITS
        many = f"a whole number from 1 to {MOST_BITS}, or null"
        require(self.bits is None or whole, "compression.bits", self.bits, many)
        if self.error_feedback and self.bits == 1:  # its error may be as large as what it is an error of
            raise ValueError(
                "compression.bits=1 with compression.error_feedback=true: what is left out would grow from "
                "round to round; set 2 bits or more, or compression=scaled_sign"
            )

    def count(self, size: int) -> int:
        """Return how many of an array's places are sent."""
        return min(size, max(1, math.ceil(self.share * size - 1e-9)))

    @abstractmethod
    def places(self, values: np.ndarray, count: int, seed: int) -> np.ndarray:
        """Return which ``count`` places of an array [n] are sent, ascending."""

    @abstractmethod
    def code_of(self, places: np.ndarray, size: int, seed: int) -> bytes:
        """Return the places as bytes."""

    @abstractmethod
    def places_in(self, code: bytes, size: int, count: int) -> tuple[np.ndarray, bytes]:
        """Return the places that a code begins with, and the rest of it."""

    def factor(self, size: int, count: int) -> float:
        """Return by what the numbers are multiplied before they are sent."""
        return 1.0

    def encode(self, values: np.ndarray, seed: int) -> bytes:
        size, count = len(values), self.count(len(values))
        if count == size:
            return quantized(values, self.bits, seed)
        places = self.places(values, count, seed)
        sent = values[places]
        if (factor := self.factor(size, count)) != 1:
            sent = sent * values.dtype.type(factor)
        return self.code_of(places, size, seed) + quantized(sent, self.bits, seed)

    def decode(self, code: bytes, size: int, dtype: np.dtype) -> np.ndarray:
        count = self.count(size)
        if count == size:
            return numbers(code, size, self.bits, dtype)
        places, rest = self.places_in(code, size, count)
        values = np.zeros(size, dtype)
        values[places] = numbers(rest, count, self.bits, dtype)
        return values


@dataclass(frozen=True)
class Sketch(Sparse):
    """Random places, new ones in each round and for each node; their seed is sent in their stead.

    The paper's sketched updates: *subsampling* for a ``share`` below 1, where numbers are multiplied by the
    inverse of it, so that the expectation of what is sent is the update; and *probabilistic quantization*
    to ``bits``. With error feedback numbers stay as they are: multiplied, what is left out would grow.
    Reduction: a share of 1 without ``bits`` is the strategy without compression, bit for bit.
    """

    bits: int | None = 8
    kind: ClassVar[str] = "sketch"

    def factor(self, size: int, count: int) -> float:
        return 1.0 if self.error_feedback else size / count

    def places(self, values: np.ndarray, count: int, seed: int) -> np.ndarray:
        return drawn(len(values), count, seed)

    def code_of(self, places: np.ndarray, size: int, seed: int) -> bytes:
        return seed.to_bytes(SEED_BYTES, "little")

    def places_in(self, code: bytes, size: int, count: int) -> tuple[np.ndarray, bytes]:
        seed = int.from_bytes(code[:SEED_BYTES], "little")
        return drawn(size, count, seed), code[SEED_BYTES:]


@dataclass(frozen=True)
class RandomMask(Sketch):
    """The paper's structured update: a node *trains* a random ``share`` of the places, and sends those.

    The gradients of the others are 0; numbers are not multiplied. With weight decay, which optimisers add
    later, the others move too, and stay behind. Reduction: that of :class:`Sketch`.
    """

    share: float = 0.25
    bits: int | None = None
    kind: ClassVar[str] = "random-mask"

    def trained(self, size: int, seed: int) -> np.ndarray | None:
        return drawn(size, self.count(size), seed) if size else np.arange(0)

    def factor(self, size: int, count: int) -> float:
        return 1.0


def drawn(size: int, count: int, seed: int) -> np.ndarray:
    """Return ``count`` of ``size`` places at random, ascending.

    NumPy promises these numbers for all of its versions, which server and nodes may have different ones of.
    """
    return largest(np.random.PCG64(seed).random_raw(size), count)


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return where the ``count`` largest of the values [n] are, ascending; of equal ones the first."""
    least = np.partition(values, len(values) - count)[len(values) - count]
    chosen = values > least
    chosen[np.flatnonzero(values == least)[: count - int(chosen.sum())]] = True
    return np.flatnonzero(chosen)
