"""Low rank: a node trains each matrix in a random subspace, and sends what it did there.

Konecny, McMahan, Yu, Richtarik, Suresh, Bacon: *Federated Learning: Strategies for Improving Communication
Efficiency*, 2016, section 2, "low rank". The update of a matrix [d1, d2] is A B. A [d1, k] is random, new
in each round and for each node, and sent as a seed; a node trains B [k, d2] alone, and sends it.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from .compression import Restriction, Shape, after_seed, seed_and_rest
from .share import Share


@dataclass(frozen=True)
class LowRank(Share):
    """A random subspace of a ``share`` of a matrix's rows: k = share * d1, rounded up.

    The columns of A are orthonormal (the paper leaves that open), so that a step of B's gradient A^T G is
    one of A A^T G for the matrix, and B = A^T Delta is read off the update. For SGD, also with a momentum
    that begins anew in each round, it is the paper's method. What other optimisers or weight decay move
    beside the subspace stays behind. A kernel [out, in, ...] is the matrix [out, in * ...]; a vector is
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
            return self.packed(values.ravel(), seed)
        delta = torch.from_numpy(values.astype(np.float64)).flatten(1)
        b = (subspace(len(values), rank, seed).T @ delta).numpy().astype(values.dtype)
        return after_seed(seed, self.packed(b.ravel(), seed))

    def decode(self, code: bytes, shape: Shape, dtype: np.dtype) -> np.ndarray:
        if (rank := self.rank(shape)) is None:
            return self.unpacked(code, math.prod(shape), dtype).reshape(shape)
        seed, rest = seed_and_rest(code)
        b = torch.from_numpy(self.unpacked(rest, rank * math.prod(shape[1:]), dtype).astype(np.float64))
        return (subspace(shape[0], rank, seed) @ b.view(rank, -1)).numpy().astype(dtype).reshape(shape)


def subspace(rows: int, rank: int, seed: int) -> Tensor:
    """Return A [rows, rank] with orthonormal columns, by numbers that NumPy promises for all versions.

    The diagonal of R is positive, which leaves one basis: the same for server and node, on any machine. It
    is computed by torch, whose threads are set: with more of them NumPy's would have other last bits.
    """
    raw = np.random.PCG64(seed).random_raw(rows * rank).reshape(rows, rank)
    q, r = torch.linalg.qr(torch.from_numpy(raw / 2.0**63 - 1))
    return q * r.diagonal().sign()
