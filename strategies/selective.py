"""Selective federated averaging: group similar nodes, then train one model for each group.

J. Liu: *Federated Learning Model Complexity vs Robustness to non-IID data and Selective Federated
Learning* (thesis), chapter 6, Algorithm 3.

    1. every node trains a model of its own                            rounds 1 ... local_rounds
    2. S_i = where node i's model is right, on a validation set        ``server_data``
    3. groups from S (:mod:`strategies.parts.clustering`)                      ``grouping``
    4. one ``inner`` strategy per group, from the initial model        the rounds after

Deviations: the server evaluates the nodes' models itself, where the thesis sends the validation set to the
nodes; the vectors are the same and a stock client will do. Reduction: where the grouping makes one group,
the rounds after ``local_rounds`` are the inner strategy's.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from .core.strategy import ServerData
from .grouped import LocalOnly
from .parts.clustering import Grouping, Overlap
from .shared.checks import require

logger = logging.getLogger("flwr.strategies")


@dataclass(kw_only=True, eq=False)
class SelectiveFedAvg(LocalOnly):
    """Local training, then one inner strategy per group of similar nodes.

    Parameters
    ----------
    grouping : from selection vectors to groups
    local_rounds : rounds of local training before the grouping
    server_data : tells which validation examples models are right about
    seed : for groupings that draw
    """

    is_always_local: ClassVar[bool] = False
    grouping: Grouping = Overlap()
    local_rounds: int = 5
    server_data: ServerData | None = None
    seed: int = 0

    _grouped: bool = field(default=False, init=False, repr=False)

    @property
    def needs_server_data(self) -> bool:
        return self.server_data is None or super().needs_server_data

    def __post_init__(self) -> None:
        """Refuse less than one round of local training."""
        super().__post_init__()
        require(self.local_rounds >= 1, "strategy.local_rounds", self.local_rounds, "1 or more")

    def set_num_rounds(self, rounds: int) -> None:
        """Refuse also a run that ends before there are groups."""
        valid, before = rounds > self.local_rounds, self.local_rounds
        require(
            valid, "rounds", rounds, f"above strategy.local_rounds={before}, after which there are groups"
        )
        super().set_num_rounds(rounds)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round > self.local_rounds and not self._grouped:
            self._select()
        return super().configure_train(server_round, arrays, config, grid)

    def _select(self) -> None:
        """Replace the nodes' own models by one fresh model per group."""
        data = self.require_server_data()
        assert self._initial is not None
        self._name_untrained()
        selections = data.compute_correctness(list(self._models.values()))
        nodes = [strategy.members for strategy in self._strategies.values()]
        groups = {
            f"group{g}": tuple(k for row in rows for k in nodes[row] or ())
            for g, rows in enumerate(self.grouping(selections, self.seed))
        }
        logger.info("groups: %s", groups)
        self.regroup(groups, dict.fromkeys(groups, self._initial))
        self._grouped = True

    def _name_untrained(self) -> None:
        """Warn of nodes that are grouped by a model that they have never trained."""
        counts = self.inner.registry.contribution_log.counts
        nodes = (k for strategy in self._strategies.values() for k in strategy.members or ())
        if idle := [k for k in nodes if not counts.get(k, {}).get("updates")]:
            line = "partitions %s have not trained in rounds 1 to %d: they are grouped by the initial model"
            logger.warning(line, idle, self.local_rounds)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        metrics["groups"] = len(self._strategies)
        return arrays, metrics

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"grouped": self._grouped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._grouped = state["grouped"]
