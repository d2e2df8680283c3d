"""Share: what the compressions have in common that send a part of each array, in few bits."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .checks import require
from .compression import Compression
from .quantization import MOST_BITS, numbers, quantized


@dataclass(frozen=True)
class Share(Compression):
    """A share of each array is sent, in so many bits a number.

    Parameters
    ----------
    share : of the array, in (0, 1]; at least one number
    bits : for each number, 1 to 16 (:mod:`.quantization`); None sends it as it is
    error_feedback : the node keeps what was left out for its next update
    rotate : the numbers are rotated before they are put into bits (:mod:`.rotation`)
    """

    mixes: ClassVar[bool] = False  # whether the numbers that are sent are sums of an array's

    share: float = 1.0
    bits: int | None = None
    error_feedback: bool = False
    rotate: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no share, and bits so few that error feedback would let what is left out grow.

        It has to be smaller than what it is left out of (Karimireddy et al. 2019, assumption A). Two bits
        do where each number keeps its place. Numbers that are mixed anew in each round are off by more than
        they are, rounded at random to 4 levels over their range, where there are above some 8,000.
        """
        require(0 < self.share <= 1, "compression.share", self.share, "in (0, 1]")
        whole = type(self.bits) is int and 1 <= self.bits <= MOST_BITS
        many = f"a whole number from 1 to {MOST_BITS}, or null"
        require(self.bits is None or whole, "compression.bits", self.bits, many)
        least = 3 if self.rotate or self.mixes else 2
        if self.error_feedback and self.bits is not None and self.bits < least:
            raise ValueError(
                f"compression.bits={self.bits} with compression.error_feedback=true: what is left out "
                f"would grow from round to round; set {least} bits or more, or compression=scaled_sign"
            )
        if self.rotate and self.bits is None:
            raise ValueError(
                "compression.rotate=true with compression.bits=null: a rotation gains nothing where "
                "numbers are sent as they are; set compression.bits to 1 to 16, or compression.rotate=false"
            )

    def count(self, size: int) -> int:
        """Return how many of so many the share is."""
        return min(size, max(1, math.ceil(self.share * size - 1e-9)))

    def packed(self, values: np.ndarray, seed: int) -> bytes:
        """Return the numbers [n] that are sent as bytes."""
        return quantized(values, self.bits, seed, rotate=self.rotate)

    def unpacked(self, code: bytes, count: int, dtype: np.dtype) -> np.ndarray:
        """Return so many numbers; raise ``ValueError`` for bytes that are none."""
        return numbers(code, count, self.bits, dtype, rotate=self.rotate)
