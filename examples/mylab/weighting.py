"""A weighting: how much does each node count?"""

from dataclasses import dataclass

from torch import Tensor

from strategies import Weighting
from strategies.parts.updates import Updates


@dataclass(frozen=True)
class ByPower(Weighting):
    """alpha_k proportional to n_k^power: 0 is uniform, 1 is by examples."""

    power: float = 0.5

    def __call__(
        self, updates: Updates, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        weights = updates.num_examples.double() ** self.power
        return weights / weights.sum(), state
