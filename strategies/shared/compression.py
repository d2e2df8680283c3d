"""Compression: encode a node's update in fewer bytes, and decode it on the server.

The strategy names a compression in its messages; a node answers with a *code*, some bytes for each trained
array of Delta_k = w[t] - w[t,k], in place of the array. The server turns codes into pseudo-gradients where
it reads replies, so that weightings, masks and step sizes see nothing of it. A node that knows no
compression sends its weights, which the server takes too.

*Error feedback* (Seide, Fu, Droppo, Li, Yu: *1-Bit Stochastic Gradient Descent*, Interspeech 2014;
Karimireddy, Rebjock, Stich, Jaggi: *Error Feedback Fixes SignSGD and other Gradient Compression Schemes*,
ICML 2019, Algorithm 2). What a code leaves out stays at the node, and is added to its next update.

    p = Delta_k + e_k,      the node sends C(p),      e_k <- p - C(p)

A reply that is lost on its way takes C(p) with it, as it takes Delta_k without error feedback.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from flwr.app import ConfigScalar
from torch import Tensor

from . import protocol
from .flower_names import HasHooks

SEED_BYTES = 8
Shape = tuple[int, ...]
Restriction = Callable[[Tensor], Tensor]  # of a gradient, to a part of it


class Compression(HasHooks, ABC):
    """How each array of an update is sent.

    A subclass is a frozen dataclass of plain values, which messages tell the nodes, and has a ``kind``. A
    node knows those in :data:`strategies.shared.codecs.COMPRESSIONS`, and those that its configuration names.
    """

    kind: ClassVar[str] = ""  # what messages call it; empty for none
    error_feedback: bool = False  # whether a node keeps what was left out
    restricts: ClassVar[bool] = False  # whether a node trains no more than it will send

    def train_config(self) -> dict[str, ConfigScalar]:
        """Return what messages tell the nodes of it."""
        settings = {f"{protocol.COMPRESSION}-{f.name}": getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {protocol.COMPRESSION: self.kind} | {k: v for k, v in settings.items() if v is not None}

    def restriction(self, like: Tensor, seed: int) -> Restriction | None:
        """Return a function from a gradient, shaped as ``like``, to the part that is sent; None: all of it."""
        return None

    @abstractmethod
    def encode(self, values: np.ndarray, seed: int) -> bytes:
        """Return the code of an array of floating-point numbers; ``seed`` decides all that it draws."""

    @abstractmethod
    def decode(self, code: bytes, shape: Shape, dtype: np.dtype) -> np.ndarray:
        """Return what an array of this shape and dtype was sent as.

        Raises
        ------
        ValueError : for bytes that are no code of such an array
        """


@dataclass(frozen=True)
class NoCompression(Compression):
    """Nodes send their weights, as they are."""

    def train_config(self) -> dict[str, ConfigScalar]:
        """Ask for nothing."""
        return {}

    def encode(self, values: np.ndarray, seed: int) -> bytes:
        """Return the values' own bytes."""
        return values.tobytes()

    def decode(self, code: bytes, shape: Shape, dtype: np.dtype) -> np.ndarray:
        """Return the values."""
        return np.frombuffer(require_length(code, math.prod(shape) * dtype.itemsize), dtype).reshape(shape)


def require_length(code: bytes, length: int) -> bytes:
    """Return a code of this length; raise ``ValueError`` for another."""
    if len(code) != length:
        raise ValueError(f"a code of {len(code)} bytes, expected {length}")
    return code


def prepend_seed(seed: int, rest: bytes) -> bytes:
    """Return a code that begins with the seed of what it drew."""
    return seed.to_bytes(SEED_BYTES, "little") + rest


def split_seed(code: bytes) -> tuple[int, bytes]:
    """Return the seed that a code begins with, and the rest of it."""
    return int.from_bytes(code[:SEED_BYTES], "little"), code[SEED_BYTES:]
