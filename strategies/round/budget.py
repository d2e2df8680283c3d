"""Budget: what privacy a run has spent, and where a clip that moves stands."""

import logging
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from strategies.parts.norms import squared_norms
from strategies.parts.privacy import Privacy, State
from strategies.parts.updates import Updates
from strategies.shared import protocol

from .ledger import Ledger

logger = logging.getLogger("flwr.strategies")
NOISE = "round %d: privacy adds noise of an expected norm of %.3g to a mean update of norm %.3g%s"
DROWNED = ": the step is mostly noise; more nodes in a round, or fewer parameters, make it less"


@dataclass
class Budget:
    """Applies a privacy part, round by round, and keeps its accounts.

    Parameters
    ----------
    privacy : the part
    ledger : in how many rounds each node took part
    state : the part's own
    again : rounds that have been taken twice, with other noise, since a run was resumed
    """

    privacy: Privacy
    ledger: Ledger
    state: State = field(default_factory=dict)
    again: int = 0
    has_compared: bool = False  # whether the noise has been set beside the update, once a process

    @property
    def rounds(self) -> int:
        """For how many rounds the node that trained most has paid; where nodes noise, also for those
        in which it was left out.
        """
        in_vain = self.privacy.at_nodes
        paid = [entry["updates"] + entry["left_out"] * in_vain for entry in self.ledger.kept.values()]
        return max(paid, default=0) + self.again

    @property
    def over(self) -> str:
        """Say why no further round may be taken; empty where it may."""
        limit = self.privacy.stop_at_epsilon
        cost = None if limit is None else self.privacy.epsilon(self.rounds + 1)
        if limit is None or cost is None or cost <= limit:
            return ""
        return f"privacy.stop_at_epsilon={limit:g}: a further round would cost epsilon {cost:.4g}"

    def metrics(self) -> dict[str, float]:
        """Return epsilon, where something is promised, and the clip that was used, where it moves."""
        cost = self.privacy.epsilon(self.rounds)
        found = {} if cost is None else {protocol.EPSILON: cost}
        return found | ({protocol.CLIP: self.state["used"]} if "used" in self.state else {})

    def clip_(self, updates: Updates, server_round: int) -> None:
        """Bound the round's updates, in place."""
        self.state = self.privacy.clip_(updates, self.state, server_round)

    def noise_(self, mean: Tensor, nodes: int, server_round: int) -> None:
        """Add the round's noise to the mean of so many updates, in place."""
        deviation = 0.0 if self.has_compared else self.privacy.deviation(nodes, self.state)
        if deviation:
            self.has_compared = True
            signal, noise = float(squared_norms(mean).sqrt()), deviation * len(mean) ** 0.5
            level, remark = (logging.WARNING, DROWNED) if noise > signal else (logging.INFO, "")
            logger.log(level, NOISE, server_round, noise, signal, remark)
        self.privacy.noise_(mean, nodes, self.state, server_round)

    def state_dict(self) -> dict[str, Any]:
        """Return what a run resumes from."""
        return {"state": dict(self.state), "again": self.again}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Continue; a round that was under way is paid for once more where its noise will be another."""
        if state is not None:
            self.state, self.again = state["state"], state["again"] + self.privacy.fresh
