"""The random compressions: places that a seed decides, and few bits for each number.

Konecny, McMahan, Yu, Richtarik, Suresh, Bacon: *Federated Learning: Strategies for Improving Communication
Efficiency*, 2016, sections 2 and 3. Each array of the model is compressed by itself, as is each matrix
there. Buffers are sent as they are. The paper's other structured update is :mod:`.low_rank`.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from .compression import Restriction, Shape, after_seed, seed_and_rest
from .share import Share


class Sparse(Share):
    """A share of each array's places is sent; the server takes the others for 0."""

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
        values = values.ravel()
        size, count = len(values), self.count(len(values))
        if count == size:
            return self.packed(values, seed)
        places = self.places(values, count, seed)
        sent = values[places]
        if (factor := self.factor(size, count)) != 1:
            sent = sent * values.dtype.type(factor)
        return self.code_of(places, size, seed) + self.packed(sent, seed)

    def decode(self, code: bytes, shape: Shape, dtype: np.dtype) -> np.ndarray:
        size = math.prod(shape)
        count = self.count(size)
        if count == size:
            return self.unpacked(code, size, dtype).reshape(shape)
        places, rest = self.places_in(code, size, count)
        values = np.zeros(size, dtype)
        values[places] = self.unpacked(rest, count, dtype)
        return values.reshape(shape)


@dataclass(frozen=True)
class Sketch(Sparse):
    """Random places, new ones in each round and for each node; their seed is sent in their stead.

    The paper's sketched updates: *subsampling* for a ``share`` below 1, where numbers are multiplied by the
    inverse of it, so that the expectation of what is sent is the update; and *probabilistic quantization*
    to ``bits``, after a *rotation* where ``rotate`` asks for it. With error feedback numbers stay as they
    are: multiplied, what is left out would grow.
    Reduction: a share of 1 without ``bits`` is the strategy without compression, bit for bit.
    """

    bits: int | None = 8
    kind: ClassVar[str] = "sketch"

    def factor(self, size: int, count: int) -> float:
        return 1.0 if self.error_feedback else size / count

    def places(self, values: np.ndarray, count: int, seed: int) -> np.ndarray:
        return drawn(len(values), count, seed)

    def code_of(self, places: np.ndarray, size: int, seed: int) -> bytes:
        return after_seed(seed, b"")

    def places_in(self, code: bytes, size: int, count: int) -> tuple[np.ndarray, bytes]:
        seed, rest = seed_and_rest(code)
        return drawn(size, count, seed), rest


@dataclass(frozen=True)
class RandomMask(Sketch):
    """The paper's structured update: a node *trains* a random ``share`` of the places, and sends those.

    The gradients of the others are 0; numbers are not multiplied. With weight decay, which optimisers add
    later, the others move too, and stay behind. Reduction: that of :class:`Sketch`.
    """

    share: float = 0.25
    bits: int | None = None
    kind: ClassVar[str] = "random-mask"
    restricts: ClassVar[bool] = True

    def restriction(self, like: Tensor, seed: int) -> Restriction | None:
        size, count = like.numel(), self.count(like.numel())
        if count == size:
            return None
        mask = torch.zeros(size)
        mask[torch.from_numpy(drawn(size, count, seed))] = 1
        return mask.view_as(like).to(like).mul

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
