"""Masks that look at how large the nodes' updates are, too, not at their signs alone.

I. Tenison's thesis names them in section 2.1 (SAND-mask), in 2.2 (the geometric mean that the AND-mask
stands for) and in 4.8 ("masks incorporating magnitude", left to future work without a rule). A is the sign
agreement of :mod:`strategies.parts.mask`, sums and means are over the nodes, unweighted.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from strategies.shared.checks import require

from .mask import AgreementMask, AndMask


@dataclass(frozen=True)
class MagnitudeMask(AgreementMask):
    """m_j = 1 where B_j >= tau, else B_j, with B_j = |sum_k Delta_k,j| / sum_k |Delta_k,j|.

    Gradient masked averaging in which a node's vote counts by its size. B = |2 P - 1| of the sign purity P
    (Chen et al.: *Just Pick a Sign: Optimizing Deep Multitask Models with Gradient Sign Dropout*, NeurIPS
    2020, eq. 1); where all updates are 0, so is B. Updates of equal size at a coordinate, or of one sign
    and none of them 0, give :class:`AgreementMask`; tau = 0 masks nothing.
    """

    def factor(self, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
        """Write 1 where the nodes agree, else how far they do."""
        total = torch.abs(deltas, out=scratch).sum(0)
        torch.sum(deltas, 0, out=out).abs_().div_(total).nan_to_num_(0).clamp_max_(1)
        least = self.tau - 4 * torch.finfo(out.dtype).eps  # 7 of 10 nodes of one size reach 0.4
        out.masked_fill_(out >= least, 1)


@dataclass(frozen=True)
class GeometricMask(AndMask):
    """m_j = (prod_k |Delta_k,j|)^(1/K) / ((1/K) sum_k |Delta_k,j|) where A_j >= tau, else 0.

    The geometric mean of the updates in the place of the arithmetic one, the logical AND of the nodes' loss
    surfaces (Parascandolo, Neitz, Orvieto, Gresele, Schölkopf: *Learning Explanations That Are Hard To
    Vary*, ICLR 2021; the rule as in their code): with uniform weights m D is, where all nodes have one
    sign, the geometric mean with that sign. Where some differ, which tau < 1 lets through, m D is shorter
    than theirs, the geometric mean with the sign of D. A node that does not move closes the coordinate.
    Updates of equal size give :class:`AndMask`.
    """

    @property
    def idle(self) -> bool:
        """Never: tau = 0 still takes the geometric mean."""
        return False

    def factor(self, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
        """Write the ratio of the two means where the nodes agree, else 0."""
        super().factor(deltas, scratch, out)
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
    k : slope; pseudo-gradients are small, so their variances are, and k counts in units of these
    """

    k: float = 10.0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        require(0 < self.k < float("inf"), "mask.k", self.k, "a number above 0")

    @property
    def idle(self) -> bool:
        """Never: factors are below 1 wherever updates differ."""
        return False

    def factor(self, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
        """Write how far the nodes agree beyond tau, in units of how they differ."""
        nodes = len(deltas)
        torch.sum(torch.sign(deltas, out=scratch), 0, out=out).abs_()  # K A_j, whole numbers
        out.sub_(round(self.tau * nodes, 9)).mul_(self.k / nodes)
        variance = deltas.var(0, correction=min(1, nodes - 1))
        out.div_(variance).nan_to_num_(0, posinf=torch.inf).tanh_().clamp_min_(0)
