"""Codecs that send a part of each array, in few bits."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from . import protocol
from .checks import require
from .compression import Compression, Restriction, Shape, prepend_seed, require_length, split_seed
from .quantization import MAX_BITS, dequantize, quantize


@dataclass(frozen=True)
class PartialCodec(Compression):
    """A share of each array is sent, each number in ``bits`` bits.

    Parameters
    ----------
    share : of the array, in (0, 1]; at least one number
    bits : for each number, 1 to 16 (:mod:`.quantization`); None sends it as it is
    error_feedback : the node keeps what was left out for its next update
    rotate : the numbers are rotated before they are put into bits (:mod:`.quantization`)
    """

    mixes: ClassVar[bool] = False  # whether the numbers that are sent are sums of an array's

    share: float = 1.0
    bits: int | None = None
    error_feedback: bool = False
    rotate: bool = False

    def __post_init__(self) -> None:
        """Refuse a share out of range, and too few bits for error feedback: what is left out would grow.

        It has to be smaller than the update itself (Karimireddy et al. 2019, assumption A). Two bits are
        enough where each number keeps its place. Numbers that are mixed anew in each round need three: of
        some 8,000 or more, 4 levels over their range leave out more than they are.
        """
        require(0 < self.share <= 1, "compression.share", self.share, "in (0, 1]")
        whole = type(self.bits) is int and 1 <= self.bits <= MAX_BITS
        many = f"a whole number from 1 to {MAX_BITS}, or null"
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
        """Return how many of ``size`` numbers the share is."""
        return min(size, max(1, math.ceil(self.share * size - 1e-9)))

    def pack_numbers(self, values: np.ndarray, seed: int) -> bytes:
        """Return the numbers [n] that are sent as bytes."""
        return quantize(values, self.bits, seed, rotate=self.rotate)

    def unpack_numbers(self, code: bytes, count: int, dtype: np.dtype) -> np.ndarray:
        """Return ``count`` numbers; raise ``ValueError`` for bytes that do not encode them."""
        return dequantize(code, count, self.bits, dtype, rotate=self.rotate)


# Low rank: a node trains each matrix in a random subspace, and sends what it did there.
#
# Konecny, McMahan, Yu, Richtarik, Suresh, Bacon: *Federated Learning: Strategies for Improving Communication
# Efficiency*, 2016, section 2, "low rank". The update of a matrix [d1, d2] is A B. A [d1, k] is random, new in
# each round and for each node, and sent as a seed; a node trains B [k, d2] alone, and sends it.


@dataclass(frozen=True)
class LowRank(PartialCodec):
    """A random subspace of a ``share`` of a matrix's rows: k = share * d1, rounded up.

    The columns of A are orthonormal (the paper leaves that open). So a step of B's gradient A^T G is one of
    A A^T G for the matrix, and the update gives B = A^T Delta. For SGD, also with a momentum
    that begins anew in each round, it is the paper's method. What other optimisers or weight decay move
    outside the subspace is not sent. A kernel [out, in, ...] is the matrix [out, in * ...]; a vector is
    trained and sent whole. Reduction: a share of 1 without ``bits`` is the strategy without compression,
    bit for bit.
    """

    share: float = 0.25
    kind: ClassVar[str] = "low-rank"
    restricts: ClassVar[bool] = True
    mixes: ClassVar[bool] = True

    def rank(self, shape: Shape) -> int | None:
        """Return k of an array of this shape; None where it is sent whole."""
        if len(shape) < 2 or 0 in shape:
            return None
        rank = self.count(shape[0])
        return rank if rank < shape[0] else None

    def restriction(self, like: Tensor, seed: int) -> Restriction | None:
        if (rank := self.rank(tuple(like.shape))) is None:
            return None
        a = subspace(len(like), rank, seed).to(like.dtype).to(like.device)
        return lambda gradient: (a @ (a.T @ gradient.flatten(1))).view_as(gradient)

    def encode(self, values: np.ndarray, seed: int) -> bytes:
        if (rank := self.rank(values.shape)) is None:
            return self.pack_numbers(values.ravel(), seed)
        delta = torch.from_numpy(values.astype(np.float64)).flatten(1)
        b = (subspace(len(values), rank, seed).T @ delta).numpy().astype(values.dtype)
        return prepend_seed(seed, self.pack_numbers(b.ravel(), seed))

    def decode(self, code: bytes, shape: Shape, dtype: np.dtype) -> np.ndarray:
        if (rank := self.rank(shape)) is None:
            return self.unpack_numbers(code, math.prod(shape), dtype).reshape(shape)
        seed, rest = split_seed(code)
        b = torch.from_numpy(
            self.unpack_numbers(rest, rank * math.prod(shape[1:]), dtype).astype(np.float64)
        )
        return (subspace(shape[0], rank, seed) @ b.view(rank, -1)).numpy().astype(dtype).reshape(shape)


def subspace(rows: int, rank: int, seed: int) -> Tensor:
    """Return A [rows, rank] with orthonormal columns, by numbers that NumPy promises for all versions.

    The diagonal of R is positive, which leaves one basis: the same for server and node, on any machine. It
    is computed by torch, whose threads are set: NumPy's last bits depend on the number of threads.
    """
    raw = np.random.PCG64(seed).random_raw(rows * rank).reshape(rows, rank)
    q, r = torch.linalg.qr(torch.from_numpy(raw / 2.0**63 - 1))
    return q * r.diagonal().sign()


# The random compressions: places that a seed decides, and few bits for each number.
#
# Konecny, McMahan, Yu, Richtarik, Suresh, Bacon: *Federated Learning: Strategies for Improving Communication
# Efficiency*, 2016, sections 2 and 3. Each array of the model is compressed by itself, as is each matrix there.
# Buffers are sent as they are. The paper's other structured update is :class:`LowRank`.


class Sparse(PartialCodec):
    """A share of each array's places is sent; the server takes the others for 0."""

    @abstractmethod
    def choose_places(self, values: np.ndarray, count: int, seed: int) -> np.ndarray:
        """Return which ``count`` places of an array [n] are sent, ascending."""

    @abstractmethod
    def encode_places(self, places: np.ndarray, size: int, seed: int) -> bytes:
        """Return the places as bytes."""

    @abstractmethod
    def decode_places(self, code: bytes, size: int, count: int) -> tuple[np.ndarray, bytes]:
        """Return the places that a code begins with, and the rest of it."""

    def scale_factor(self, size: int, count: int) -> float:
        """Return by what the numbers are multiplied before they are sent."""
        return 1.0

    def encode(self, values: np.ndarray, seed: int) -> bytes:
        values = values.ravel()
        size, count = len(values), self.count(len(values))
        if count == size:
            return self.pack_numbers(values, seed)
        places = self.choose_places(values, count, seed)
        sent = values[places]
        if (factor := self.scale_factor(size, count)) != 1:
            sent = sent * values.dtype.type(factor)
        return self.encode_places(places, size, seed) + self.pack_numbers(sent, seed)

    def decode(self, code: bytes, shape: Shape, dtype: np.dtype) -> np.ndarray:
        size = math.prod(shape)
        count = self.count(size)
        if count == size:
            return self.unpack_numbers(code, size, dtype).reshape(shape)
        places, rest = self.decode_places(code, size, count)
        values = np.zeros(size, dtype)
        values[places] = self.unpack_numbers(rest, count, dtype)
        return values.reshape(shape)


@dataclass(frozen=True)
class Sketch(Sparse):
    """Random places, new ones in each round and for each node; their seed is sent instead of them.

    The paper's sketched updates: *subsampling* for a ``share`` below 1, and *probabilistic quantization* to
    ``bits``, after a *rotation* if ``rotate`` is set. Numbers are divided by the share, so that the
    expectation of what is sent is the update. With error feedback they stay as they are: otherwise what is
    left out would grow.
    Reduction: a share of 1 without ``bits`` is the strategy without compression, bit for bit.
    """

    bits: int | None = 8
    kind: ClassVar[str] = "sketch"

    def scale_factor(self, size: int, count: int) -> float:
        return 1.0 if self.error_feedback else size / count

    def choose_places(self, values: np.ndarray, count: int, seed: int) -> np.ndarray:
        return draw_places(len(values), count, seed)

    def encode_places(self, places: np.ndarray, size: int, seed: int) -> bytes:
        return prepend_seed(seed, b"")

    def decode_places(self, code: bytes, size: int, count: int) -> tuple[np.ndarray, bytes]:
        seed, rest = split_seed(code)
        return draw_places(size, count, seed), rest


@dataclass(frozen=True)
class RandomMask(Sketch):
    """The paper's structured update: a node *trains* a random ``share`` of the places, and sends those.

    The gradients of the others are 0; numbers are not multiplied. With weight decay, which optimisers add
    later, the others move too, and are not sent. Reduction: that of :class:`Sketch`.
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
        mask[torch.from_numpy(draw_places(size, count, seed))] = 1
        return mask.view_as(like).to(like).mul

    def scale_factor(self, size: int, count: int) -> float:
        return 1.0


def draw_places(size: int, count: int, seed: int) -> np.ndarray:
    """Return ``count`` of ``size`` places at random, ascending.

    NumPy promises the same numbers in all of its versions: server and nodes may have different ones.
    """
    return find_largest(np.random.PCG64(seed).random_raw(size), count)


def find_largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return where the ``count`` largest of the values [n] are, ascending; of equal ones the first."""
    least = np.partition(values, len(values) - count)[len(values) - count]
    chosen = values > least
    chosen[np.flatnonzero(values == least)[: count - int(chosen.sum())]] = True
    return np.flatnonzero(chosen)


# The biased compressions, which need error feedback: the largest places, and signs.
#
# Karimireddy, Rebjock, Stich, Jaggi: *Error Feedback Fixes SignSGD and other Gradient Compression Schemes*,
# ICML 2019. Each array of the model is compressed by itself.


@dataclass(frozen=True)
class TopK(Sparse):
    """The places with the largest numbers, by magnitude; of equal ones the first.

    The places are sent as a bitmap or as 32 bits each, whichever is shorter. Without error feedback small
    numbers never arrive (Karimireddy et al. 2019, section 4). Reduction: that of
    :class:`~strategies.shared.codecs.Sketch`.
    """

    share: float = 0.01
    error_feedback: bool = True
    kind: ClassVar[str] = "top-k"

    def choose_places(self, values: np.ndarray, count: int, seed: int) -> np.ndarray:
        return find_largest(np.abs(values), count)

    def encode_places(self, places: np.ndarray, size: int, seed: int) -> bytes:
        if _as_bitmap(size, len(places)):
            flags = np.zeros(size, bool)
            flags[places] = True
            return np.packbits(flags).tobytes()
        return places.astype("<u4").tobytes()

    def decode_places(self, code: bytes, size: int, count: int) -> tuple[np.ndarray, bytes]:
        if _as_bitmap(size, count):
            end = -(-size // 8)
            head = np.frombuffer(require_length(code[:end], end), np.uint8)
            places = np.flatnonzero(np.unpackbits(head, count=size))
        else:
            end = 4 * count
            places = np.frombuffer(require_length(code[:end], end), "<u4").astype(np.int64)
        if len(places) != count or places[-1] >= size or bool((np.diff(places) <= 0).any()):
            raise ValueError(f"positions that are not {count} of {size}, ascending")
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


# What a message asks for.

COMPRESSIONS: tuple[type[Compression], ...] = (LowRank, Sketch, RandomMask, TopK, ScaledSign)


def requested_compression(
    config: Mapping[str, object], known: Sequence[type[Compression]] = COMPRESSIONS
) -> Compression | None:
    """Return which of the ``known`` compressions a message with this configuration asks for; None for none.

    Raises
    ------
    ValueError : for a compression that is not known, or settings that it cannot have
    """
    if not (name := config.get(protocol.COMPRESSION)):
        return None
    kinds = {kind.kind: kind for kind in known}
    if name not in kinds:
        names = ", ".join(sorted(kinds))
        raise ValueError(f"the server asks for compression={name!r}, and this node knows {names}")
    kind: Any = kinds[str(name)]
    settings = {field.name: config.get(f"{protocol.COMPRESSION}-{field.name}") for field in fields(kind)}
    try:
        chosen: Compression = kind(**settings)
    except TypeError as error:
        raise ValueError(f"the server asks for compression={name!r} without its settings") from error
    return chosen
