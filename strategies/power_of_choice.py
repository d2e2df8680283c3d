"""Power-of-choice: of some nodes drawn at random, those with the largest loss train.

Cho, Wang, Joshi: *Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
Strategies*, 2020 (arXiv 2010.01243), sections 3 and 5. Of d candidates the K = ``nodes_per_round`` with the
largest L_k train. The paper has three kinds of L_k:

    pow-d   F_k(w[t]), what node k minimises, at the round's model                  asks = True
    cpow-d  the same on b examples that it draws                                    loss_examples = b
    rpow-d  its mean loss over the local steps of the last round that it took
            part in, infinite before it                                             asks = False

pow-d and cpow-d ask the candidates before the round: one more message to d nodes, and a pass over their
examples. rpow-d asks nobody, and in the end each node has trained at least once. Where losses are equal, the
seed decides.

Deviations: candidates are drawn uniformly, where the paper draws node k with its share of the examples, which
the server does not know before it has asked. Updates are weighted by examples (``weighting=uniform`` is the
paper's mean). For rpow-d nodes must say their ``loss``, 0 or above: one below leaves the node out of the
round. Otherwise nodes must be ours; a candidate that does not answer does not train. Reduction: candidates at
most K is FedAvg, where all of them answer.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from torch import Tensor

from .core.client_registry import sample_partitions
from .core.pseudo_gradient import PseudoGradientStrategy
from .core.strategy import Question
from .parts.privacy import NoPrivacy, raise_no_guarantee
from .parts.updates import Updates
from .shared import protocol
from .shared.checks import require, require_count


@dataclass(kw_only=True, eq=False)
class PowerOfChoice(PseudoGradientStrategy):
    """FedAvg of the nodes with the largest loss, of some that are drawn.

    Parameters
    ----------
    candidates : d, how many are drawn; with ``nodes_per_round`` or less it is FedAvg
    asks : whether the candidates are asked for their loss at the round's model (pow-d); False takes the last
        loss of each node's training (rpow-d)
    loss_examples : b, on how many examples they measure it (cpow-d); None for all
    """

    sums: ClassVar[tuple[str, ...] | None] = ()
    required_metrics: ClassVar[tuple[str, ...]] = (protocol.LOSS,)
    candidates: int = 10
    asks: bool = False
    loss_examples: int | None = None

    _losses: dict[int, float] = field(
        default_factory=dict, init=False, repr=False
    )  # rpow-d's L_k by partition

    def __post_init__(self) -> None:
        """Refuse invalid counts, examples that nobody is asked for, and a privacy that losses would undo."""
        super().__post_init__()
        require_count("strategy.candidates", self.candidates)
        require_count("strategy.loss_examples", self.loss_examples, optional=True)
        if self.asks:
            self.required_metrics = ()  # type: ignore[misc]  # of replies; answers have the losses
        expected = "null, as strategy.asks=false asks nobody"
        require(
            self.asks or self.loss_examples is None, "strategy.loss_examples", self.loss_examples, expected
        )
        if type(self.privacy) is not NoPrivacy:
            losses = "strategy=power_of_choice chooses who trains by losses without noise"
            raise_no_guarantee(losses, "choose another strategy")

    def for_group(self, name: str, members: tuple[int, ...]) -> Self:
        raise ValueError(
            "strategy.inner=PowerOfChoice chooses among all nodes, and groups would choose each for itself: "
            "choose another inner strategy"
        )

    @property
    def question(self) -> Question | None:
        return Question((protocol.START_LOSS,), self.loss_examples) if self.asks else None

    def choose_candidates(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Draw the candidates."""
        count = max(self.count_in_round(len(partition_ids)), self.candidates)
        return sample_partitions(partition_ids, count, self.seed, server_round)

    def choose(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the candidates with the largest losses."""
        count = self.count_in_round(len(partition_ids))
        if self.asks:
            losses = {k: answer[protocol.START_LOSS] for k, answer in self.answers.items()}
            drawn = list(losses)
        else:
            losses, drawn = self._losses, self.choose_candidates(partition_ids, server_round)
        first = set(sample_partitions(drawn, count, self.seed, server_round))  # of equal losses
        ranked = sorted(drawn, key=lambda k: (-losses.get(k, float("inf")), k not in first))
        return sorted(ranked[:count])

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        metrics, weights = super().take_step(server_round, updates)
        if not self.asks:
            losses = updates.metrics[protocol.LOSS].tolist()
            self._losses |= dict(zip(updates.partition_ids, losses, strict=True))
        return metrics, weights

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"losses": dict(self._losses)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._losses = dict(state["losses"])
