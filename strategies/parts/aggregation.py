"""Aggregation: how do the nodes' pseudo-gradients become one?

The mean trusts every node. Others bear with some that send anything at all:

    median        by coordinate (Yin, Chen, Ramchandran, Bartlett: *Byzantine-Robust Distributed Learning:
                  Towards Optimal Statistical Rates*, ICML 2018, definition 1)
    trimmed mean  by coordinate, without the largest and the smallest values (the same, definition 2)
    Krum          the update whose neighbours are nearest (:mod:`strategies.parts.krum`)

Each takes the place of the mean in the update rule; mask, server optimizer and a constant step size go with
all of them. Buffers are aggregated in the same way. A node's number of examples is its own claim, so that
the three give each node one vote.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from strategies.shared.checks import require

from .blocks import blocks
from .mask import Factors, Mask
from .step_size import StepSize
from .updates import Updates
from .weighting import Uniform, Weighting

Spare = tuple[Tensor, Tensor] | None


class Aggregation(ABC):
    """What the sum over the nodes is in the update rule."""

    of_mean: ClassVar[bool] = False  # whether it is their weighted mean; subclasses say so anew
    asks_for: ClassVar[str | None] = None  # a metric that each node must send, a number, 0 or above

    @property
    def needs(self) -> tuple[str, ...]:
        """The metrics without which a reply cannot be aggregated."""
        return (self.asks_for,) if self.asks_for else ()

    def require(self, weighting: Weighting, step_size: StepSize, nodes: int | None) -> None:
        """Raise ``ValueError`` for parts, or a number of nodes in a round, that it cannot go with."""
        return None

    def lacks(self, updates: Updates) -> str | None:
        """Say what a round lacks to be aggregated; None when nothing is missing."""
        return None

    def weights(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return how much each node counts, given the weighting's ``weights``."""
        return weights

    @abstractmethod
    def with_factors(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: Spare = None
    ) -> tuple[Tensor, Factors | None]:
        """Return the aggregate [P] and the mask's factors (see :meth:`~strategies.Mask.with_mean`)."""

    @abstractmethod
    def of_buffers(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return the aggregate [B] of the buffers."""


@dataclass(frozen=True)
class Mean(Aggregation):
    """D = sum_k alpha_k Delta_k, as every method of this package prints it."""

    of_mean: ClassVar[bool] = True

    def with_factors(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: Spare = None
    ) -> tuple[Tensor, Factors | None]:
        """Return the weighted mean, and the mask's factors from the same pass."""
        return mask.with_mean(updates, weights, spare)

    def of_buffers(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return the weighted mean."""
        return updates.mean_buffers(weights)


class Robust(Aggregation):
    """What the robust ones have in common: one node, one vote."""

    def require(self, weighting: Weighting, step_size: StepSize, nodes: int | None) -> None:
        """Refuse weights, and a step size that any single node could drive."""
        name = f"aggregation={type(self).__name__}"
        if not isinstance(weighting, Uniform):
            raise ValueError(
                f"{name} gives every node the same weight, but weighting={type(weighting).__name__}: "
                "set weighting=uniform, or aggregation=mean"
            )
        if step_size.of_all_updates:
            raise ValueError(
                f"{name} bears with hostile nodes, but step_size={type(step_size).__name__} grows with any "
                "node's update: set step_size=constant, or aggregation=mean"
            )


class Trimmed(Robust):
    """The mean of each coordinate without its largest and smallest values."""

    @abstractmethod
    def cut(self, nodes: int) -> int:
        """Return how many values are left out at each end, of so many."""

    def with_factors(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: Spare = None
    ) -> tuple[Tensor, Factors | None]:
        """Return the trimmed mean; the mask reads all updates."""
        middle, factors = mask.with_mean(updates, weights, spare)
        return self._trimmed(updates.deltas, middle), factors

    def of_buffers(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return the trimmed mean."""
        return self._trimmed(updates.buffers, torch.empty_like(updates.buffers[0]))

    def _trimmed(self, rows: Tensor, out: Tensor) -> Tensor:
        nodes = len(rows)
        cut = self.cut(nodes)
        for block in blocks(rows):
            torch.mean(rows[:, block].sort(0).values[cut : nodes - cut], 0, out=out[block])
        return out


@dataclass(frozen=True)
class TrimmedMean(Trimmed):
    """Without the floor(share K) largest and as many smallest values.

    Parameters
    ----------
    share : the paper's beta, in [0, 1/2): the share of hostile nodes that it bears with. 0 is
        :class:`Mean` with uniform weights, to rounding
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a share that leaves nothing."""
        require(0 <= self.share < 0.5, "aggregation.share", self.share, "in [0, 0.5)")

    def cut(self, nodes: int) -> int:
        return math.floor(self.share * nodes + 1e-9)


@dataclass(frozen=True)
class Median(Trimmed):
    """The median; of an even number of values the mean of the middle two.

    It bears with just under half of the nodes. With one or two nodes it is :class:`Mean`.
    """

    def cut(self, nodes: int) -> int:
        return (nodes - 1) // 2
