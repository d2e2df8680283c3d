"""Krum: of the nodes' updates the one whose neighbours are nearest.

Blanchard, El Mhamdi, Guerraoui, Stainer: *Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent*, NeurIPS 2017, section 4.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from strategies.shared.checks import require, require_count

from .aggregation import Mean, Robust
from .norms import squared_distances
from .step_size import StepSize
from .updates import Updates
from .weighting import Weighting


@dataclass(frozen=True)
class Krum(Robust, Mean):
    """The mean of the updates with the lowest scores; a score sums the squares of the least distances.

        s_k = sum of ||Delta_k - Delta_j||^2 over the K - f - 2 nearest j != k

    Equal scores: the lower partition id first. The weights that a round shows are 1/m or 0.

    Parameters
    ----------
    num_hostile : f, how many hostile nodes a round may have; it needs K >= 2 f + 3 replies
    num_selected : m; 1 is Krum, more is Multi-Krum, all K of them the uniform :class:`Mean`
    """

    num_hostile: int = 1
    num_selected: int = 1

    def __post_init__(self) -> None:
        """Refuse counts out of range."""
        valid = isinstance(self.num_hostile, int) and self.num_hostile >= 0
        require(valid, "aggregation.num_hostile", self.num_hostile, "a whole number, 0 or above")
        require_count("aggregation.num_selected", self.num_selected)

    @property
    def least(self) -> int:
        """How many replies a round needs."""
        return max(2 * self.num_hostile + 3, self.num_selected)

    def require(self, weighting: Weighting, step_size: StepSize, nodes: int | None) -> None:
        super().require(weighting, step_size, nodes)
        if nodes is not None and nodes < self.least:
            raise ValueError(
                f"aggregation=Krum with num_hostile={self.num_hostile} and num_selected="
                f"{self.num_selected} needs {self.least} nodes in a round, but there are {nodes}: ask "
                "more, expect fewer hostile, or set aggregation=mean"
            )

    def lacks(self, updates: Updates) -> str | None:
        if (kept := len(updates.partition_ids)) < self.least:
            return f"{kept} sound replies, aggregation=Krum needs {self.least}"
        return None

    def weights(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return 1/m for the m nodes with the lowest scores, else 0."""
        deltas = updates.deltas
        distances = torch.stack([squared_distances(deltas, row) for row in deltas])
        last = len(deltas) - self.num_hostile - 1
        nearest = distances.sort(1).values[:, 1:last]  # the first is its own
        chosen = nearest.sum(1).argsort(stable=True)[: self.num_selected]
        return torch.zeros_like(weights).index_fill_(0, chosen, 1 / self.num_selected)
