"""Mask (m): restrict the step to coordinates on which the nodes agree.

A mask maps one round's updates to a factor in [0, 1] per coordinate, which multiplies the final direction.
Most masks below start from the *agreement*

    A_j = | (1/K) sum_k sign(Delta_k,j) |        sign(0) = 0; unweighted, over the nodes that replied

of Tenison et al.: *Gradient Masked Averaging for Federated Learning*, TMLR 2023 (I. Tenison's thesis,
eq. 3.1.1). A lies in [0, 1]; the printed (0, 1] does not hold for an even number of nodes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from strategies.shared import protocol
from strategies.shared.checks import require

from .layout import block_size
from .updates import Part, Updates


class MaskResult(NamedTuple):
    """The result of a mask in one round.

    Parameters
    ----------
    values : the factor of each coordinate [P]
    masked_share : the share of them below 1. Of :class:`AndMask` and :class:`AgreementMask` these are the
        coordinates with A < tau (thesis, figure 3.1)
    """

    values: Tensor
    masked_share: float


RENAMED = {  # what a mask defines: the old names, for one release, and the new ones
    "idle": "is_identity",
    "factor": "mask_values",
    "with_mean": "mean_and_mask",
}


class Mask(Part, ABC):
    """The letter m of the update rule."""

    renamed = RENAMED
    min_nodes: ClassVar[int] = 1

    def require_nodes(self, count: int) -> None:
        """Raise ``ValueError`` where a round of ``count`` nodes is too few to agree or disagree."""
        if count < self.min_nodes:
            raise ValueError(
                f"mask={type(self).__name__} needs at least {self.min_nodes} nodes in a "
                f"round, but nodes_per_round={count}: a single node agrees with itself everywhere; set "
                "mask=none"
            )

    @property
    @abstractmethod
    def is_identity(self) -> bool:
        """Whether every factor is 1; then a round is, bit for bit, one without a mask."""

    @abstractmethod
    def mask_values(self, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
        """Write to ``out`` the factor per coordinate [B] of the pseudo-gradients [K, B] there.

        ``scratch``, of the deltas' shape, may be overwritten: a fresh one would cost more than the rest.
        """

    def mean_and_mask(
        self, updates: Updates, weights: Tensor, spare: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, MaskResult | None]:
        """Return the mean pseudo-gradient [P] and the factors, in one pass over the updates.

        The factors are None where all of them are 1. ``spare``, two unused vectors [P], is written over:
        fresh pages would cost a seventh of the time.
        """
        if self.is_identity:
            return updates.mean(weights), None
        deltas = updates.deltas
        mean, values = spare or (torch.empty_like(deltas[0]), torch.empty_like(deltas[0]))
        scratch = torch.empty_like(deltas[:, : block_size(deltas)])
        counts = list[Tensor]()
        for columns, alpha in updates.iterate_blocks(weights):
            piece, factors = deltas[:, columns], values[columns]
            room = scratch[:, : piece.shape[1]]
            torch.mv(piece.T, alpha, out=mean[columns])
            if self.mask_values(piece, room, factors) is not None:  # type: ignore[func-returns-value]
                raise TypeError(f"{type(self).__name__}.mask_values returns its values: write them to out")
            # A float's floor and sum take half the time of a comparison and a count.
            ones = torch.floor(factors, out=room[0])
            counts.append(ones.sum(dtype=torch.float32))
        masked = len(values) - int(torch.stack(counts).long().sum())
        return mean, MaskResult(values, masked / len(values))

    def metrics(self, factors: MaskResult | None) -> dict[str, float]:
        """Return what a round's metrics show: the share of coordinates that were masked."""
        return {protocol.MASKED: 0.0 if factors is None else factors.masked_share}


@dataclass(frozen=True)
class NoMask(Mask):
    """m = 1 everywhere."""

    sums: ClassVar[tuple[str, ...] | None] = ()
    is_identity = True

    def mask_values(self, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
        """Write ones."""
        out.fill_(1)

    def metrics(self, factors: MaskResult | None) -> dict[str, float]:
        """Return nothing: no mask was chosen."""
        return {}


@dataclass(frozen=True)
class AndMask(Mask):
    """m_j = 1 where A_j >= tau, else 0 (Parascandolo et al., ICLR 2021; thesis, section 2.2).

    Parameters
    ----------
    tau : agreement threshold in [0, 1]; 0 masks nothing
    """

    tau: float = 0.4
    min_nodes: ClassVar[int] = 2
    sums: ClassVar[tuple[str, ...] | None] = ("signs",)

    def __post_init__(self) -> None:
        """Refuse a threshold outside [0, 1]."""
        require(0 <= self.tau <= 1, "mask.tau", self.tau, "in [0, 1]")

    @property
    def is_identity(self) -> bool:
        """Whether tau is 0."""
        return self.tau == 0

    def mask_values(self, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
        """Write 1 where the nodes agree, else 0."""
        signs = torch.sign(deltas, out=scratch)
        self.mask_from_signs_(torch.sum(signs, 0, out=out), len(deltas))

    def mean_and_mask(
        self, updates: Updates, weights: Tensor, spare: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, MaskResult | None]:
        if not updates.row_sums or self.is_identity:
            return super().mean_and_mask(updates, weights, spare)
        values = self.mask_from_signs_(updates.sum("signs"), len(updates.partition_ids))
        return updates.mean(weights), MaskResult(values, float((values < 1).double().mean()))

    def mask_from_signs_(self, sums: Tensor, nodes: int) -> Tensor:
        """Write the factors over the sums of the signs of ``nodes`` nodes; return them."""
        return sums.abs_().ge_(self._least(nodes))

    def _least(self, nodes: int) -> float:
        """Return the least K A_j that counts as agreement.

        The slack absorbs rounding: signs of 10 nodes that sum to 7 reach tau = 0.7.
        """
        return self.tau * nodes - 1e-9


@dataclass(frozen=True)
class AgreementMask(AndMask):
    """m_j = 1 where A_j >= tau, else A_j: gradient masked averaging (thesis, eq. 3.1.1).

    It equals :class:`AndMask` where all nodes agree, and does not change when a node's
    pseudo-gradient is multiplied by a positive number.
    """

    sums: ClassVar[tuple[str, ...] | None] = ("signs",)

    def mask_from_signs_(self, sums: Tensor, nodes: int) -> Tensor:
        """Write 1 where the nodes agree, else how far they do."""
        # -K A_j <= -least becomes -K: one pass where a comparison and a choice would be three
        return torch.threshold_(sums.abs_().neg_(), -self._least(nodes), -nodes).div_(-nodes)


# Masks that look at how large the nodes' updates are, too, not at their signs alone.
#
# I. Tenison's thesis names them in section 2.1 (SAND-mask), in 2.2 (the geometric mean that the AND-mask stands
# for) and in 4.8 ("masks incorporating magnitude", left to future work without a rule). A is the sign agreement
# at the top of this file, sums and means are over the nodes, unweighted.


@dataclass(frozen=True)
class MagnitudeMask(AgreementMask):
    """m_j = 1 where B_j >= tau, else B_j, with B_j = |sum_k Delta_k,j| / sum_k |Delta_k,j|.

    Gradient masked averaging in which a node's vote counts by its size. B = |2 P - 1| of the sign purity P
    (Chen et al.: *Just Pick a Sign: Optimizing Deep Multitask Models with Gradient Sign Dropout*, NeurIPS
    2020, eq. 1); where all updates are 0, so is B. Updates of equal size at a coordinate, or of one sign
    and none of them 0, give :class:`AgreementMask`; tau = 0 masks nothing.
    """

    sums: ClassVar[tuple[str, ...] | None] = None

    def mask_values(self, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
        """Write 1 where the nodes agree, else how far they do."""
        total = torch.abs(deltas, out=scratch).sum(0)
        torch.sum(deltas, 0, out=out).abs_().div_(total).nan_to_num_(0).clamp_max_(1)
        least = self.tau - 4 * torch.finfo(out.dtype).eps  # 7 of 10 nodes of one size reach 0.4
        out.masked_fill_(out >= least, 1)


@dataclass(frozen=True)
class GeometricMask(AndMask):
    """m_j = (prod_k |Delta_k,j|)^(1/K) / ((1/K) sum_k |Delta_k,j|) where A_j >= tau, else 0.

    The geometric mean of the updates replaces the arithmetic one, as a logical AND of the nodes' loss
    surfaces (Parascandolo, Neitz, Orvieto, Gresele, Schölkopf: *Learning Explanations That Are Hard To
    Vary*, ICLR 2021; the rule as in their code). With uniform weights m D is, where all nodes have one
    sign, the geometric mean with that sign. Where some differ, which tau < 1 lets through, m D is shorter
    than in their code, which takes the geometric mean with the sign of D. A coordinate that one node does
    not move has factor 0. Updates of equal size give :class:`AndMask`.
    """

    sums: ClassVar[tuple[str, ...] | None] = None

    @property
    def is_identity(self) -> bool:
        """Never: tau = 0 still takes the geometric mean."""
        return False

    def mask_values(self, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
        """Write the ratio of the two means where the nodes agree, else 0."""
        super().mask_values(deltas, scratch, out)
        sizes = torch.abs(deltas, out=scratch)
        ratio = sizes.div_(sizes.mean(0)).log_().mean(0).exp_()
        out.mul_(ratio.nan_to_num_(0).clamp_max_(1))  # 0 / 0 where no node moves


@dataclass(frozen=True)
class SandMask(AndMask):
    """m_j = max(0, tanh(k (A_j - tau) / v_j)), v_j the variance of Delta_k,j over the nodes.

    Shahtalebi, Gagnon-Audet, Laleh, Faramarzi, Ahuja, Rish: *SAND-mask: An Enhanced Gradient Masking
    Strategy for the Discovery of Invariances in Domain Generalization*, 2021; read from their code
    (DomainBed), where v is divided by K - 1. It is smooth where the AND-mask is a step, and the less the
    updates differ the more of the direction it lets through. Deviation: their code also divides by each
    layer's mean factor. Reduction: k to infinity gives :class:`AndMask`, but 0 where A_j = tau.

    Parameters
    ----------
    tau : agreement threshold in [0, 1]
    k : slope, by which the variances are divided; these are small, as pseudo-gradients are
    """

    sums: ClassVar[tuple[str, ...] | None] = None

    k: float = 10.0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        require(0 < self.k < float("inf"), "mask.k", self.k, "a number above 0")

    @property
    def is_identity(self) -> bool:
        """Never: factors are below 1 wherever updates differ."""
        return False

    def mask_values(self, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
        """Write how far the nodes agree beyond tau, in units of how they differ."""
        nodes = len(deltas)
        torch.sum(torch.sign(deltas, out=scratch), 0, out=out).abs_()  # K A_j, whole numbers
        out.sub_(round(self.tau * nodes, 9)).mul_(self.k / nodes)
        variance = deltas.var(0, correction=min(1, nodes - 1))
        out.div_(variance).nan_to_num_(0, posinf=torch.inf).tanh_().clamp_min_(0)
