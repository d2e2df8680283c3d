"""Mask (m): on which coordinates do the nodes agree?

A mask maps one round's updates to a factor in [0, 1] per coordinate, [P], that multiplies the final
direction; None leaves the direction as it is. Both masks below start from the *agreement*

    A_j = | (1/K) sum_k sign(Delta_k,j) |        sign(0) = 0; unweighted, over the nodes that replied

of Tenison et al.: *Gradient Masked Averaging for Federated Learning*, TMLR 2023 (I. Tenison's thesis,
eq. 3.1.1). A lies in [0, 1]; the printed (0, 1] does not hold for an even number of nodes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .blocks import blocks
from .checks import require
from .updates import Updates


class Mask(ABC):
    """The letter m of the update rule."""

    min_nodes: ClassVar[int] = 1

    @abstractmethod
    def __call__(self, updates: Updates) -> Tensor | None:
        """Return the factor per coordinate [P], or None for all ones."""


@dataclass(frozen=True)
class NoMask(Mask):
    """m = 1 everywhere."""

    def __call__(self, updates: Updates) -> None:
        """Return None: nothing is masked."""
        return None


@dataclass(frozen=True)
class AndMask(Mask):
    """m_j = 1 where A_j >= tau, else 0 (Parascandolo et al., ICLR 2021; thesis, section 2.2).

    Parameters
    ----------
    tau : agreement threshold in [0, 1]; 0 masks nothing
    """

    tau: float = 0.4
    min_nodes: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Refuse a threshold outside [0, 1]."""
        require(0 <= self.tau <= 1, "mask.tau", self.tau, "in [0, 1]")

    def __call__(self, updates: Updates) -> Tensor | None:
        """Return the mask [P]."""
        if self.tau == 0:
            return None
        deltas, nodes = updates.deltas, len(updates.partition_ids)
        least = self.tau * nodes - 1e-9  # whole numbers are compared: 7 of 10 nodes reach tau = 0.7
        mask, ones = torch.empty_like(deltas[0]), torch.ones(nodes, dtype=deltas.dtype)
        for block in blocks(len(mask)):
            counted = (ones @ torch.sign(deltas[:, block])).abs_()  # K A_j, exactly
            mask[block] = self._factor(counted, counted >= least, nodes)
        return mask

    def _factor(self, counted: Tensor, agreed: Tensor, nodes: int) -> Tensor:
        """Return m_j from K A_j, which may be overwritten, and from where it reaches tau K."""
        return agreed


@dataclass(frozen=True)
class AgreementMask(AndMask):
    """m_j = 1 where A_j >= tau, else A_j: gradient masked averaging (thesis, eq. 3.1.1).

    It equals :class:`AndMask` where all nodes agree, and does not change when a node's
    pseudo-gradient is multiplied by a positive number.
    """

    def _factor(self, counted: Tensor, agreed: Tensor, nodes: int) -> Tensor:
        return counted.div_(nodes).masked_fill_(agreed, 1.0)
