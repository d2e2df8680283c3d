"""Power-of-choice: of some nodes drawn at random, those with the largest loss train.

Cho, Wang, Joshi: *Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
Strategies*, 2020 (arXiv 2010.01243), section 5: the variant rpow-d, which asks nobody for a loss before the
round. Of d candidates the K = ``nodes_per_round`` with the largest L_k train,

    L_k = node k's mean loss over the local steps of the last round that it took part in, infinite before it

so that in the end each node has been asked at least once. Where losses are equal, the seed decides.
Deviations: candidates are drawn uniformly, where the paper draws node k with its share of the examples,
which the server does not know before it has asked; updates are weighted by examples (``weighting=uniform``
is the paper's mean). pow-d, which asks the candidates for their loss at w[t], is left out. Nodes must say
their ``loss``, 0 or above: one below leaves the node out of the round. Reduction: candidates at most K is
FedAvg.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from torch import Tensor

from .core.client_registry import sample
from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.updates import Updates
from .shared import protocol
from .shared.checks import require_count


@dataclass(kw_only=True, eq=False)
class PowerOfChoice(PseudoGradientStrategy):
    """FedAvg of the nodes with the largest loss, of some that are drawn.

    Parameters
    ----------
    candidates : d, how many are drawn; with ``nodes_per_round`` or less it is FedAvg
    """

    sums: ClassVar[tuple[str, ...] | None] = ()
    required_metrics: ClassVar[tuple[str, ...]] = (protocol.LOSS,)
    candidates: int = 10

    _losses: dict[int, float] = field(default_factory=dict, init=False, repr=False)  # L_k by partition

    def __post_init__(self) -> None:
        """Refuse a number of candidates that is none."""
        super().__post_init__()
        require_count("strategy.candidates", self.candidates)

    def for_group(self, name: str, members: tuple[int, ...]) -> Self:
        raise ValueError(
            "strategy.inner=PowerOfChoice chooses among all nodes, and groups would choose each for itself: "
            "take another inner strategy"
        )

    def choose(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the candidates with the largest losses."""
        count = self.count_in_round(len(partition_ids))
        drawn = sample(partition_ids, max(count, self.candidates), self.seed, server_round)
        first = set(sample(drawn, count, self.seed, server_round))  # of those that are alike
        ranked = sorted(drawn, key=lambda k: (-self._losses.get(k, float("inf")), k not in first))
        return sorted(ranked[:count])

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        metrics, weights = super().take_step(server_round, updates)
        losses = updates.metrics[protocol.LOSS].tolist()
        self._losses |= dict(zip(updates.partition_ids, losses, strict=True))
        return metrics, weights

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"losses": dict(self._losses)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._losses = dict(state["losses"])
