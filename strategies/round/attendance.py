"""Attendance: nodes that are chosen for a round and do not come, as phones do that lose their network.

Whether a node comes is drawn anew for each round from the seed, the round and its partition, so that it is
the same on every runtime and under every strategy. Nodes that come and do less: see
:mod:`clients.stragglers`, which goes by the same draw.
"""

import logging
from dataclasses import dataclass, field

from flwr.serverapp import Grid

from strategies.shared import protocol
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, generator

from .failures import Lacking, NoStep
from .participation import Participation

logger = logging.getLogger("flwr.strategies")


@dataclass(kw_only=True, eq=False)
class Attendance(Participation):
    """Participation of nodes that drop out.

    Parameters
    ----------
    dropout : the probability that a node that was chosen does not take part; it is not asked, and no
        failure. 0: all that are chosen are asked. A round in which too few are left, or one is away whose
        reply is needed, takes no step, and does not count as failed
    """

    dropout: float = 0.0
    _dropped: int = field(default=0, init=False, repr=False)  # of those chosen in this round
    _passed_over: int = field(default=0, init=False, repr=False)  # of a group: K others were chosen

    def __post_init__(self) -> None:
        """Refuse what is no probability, and 1: nobody would ever take part."""
        super().__post_init__()
        require(0 <= self.dropout < 1, "participation.dropout", self.dropout, "in [0, 1)")

    def ask(self, grid: Grid, server_round: int) -> dict[int, int]:
        """Return the nodes that take part in a round, as {partition id: node id}."""
        nodes = self.available(grid)
        shared = self.group and (self.nodes_per_round or self.fraction_train is not None)
        population = self._roster.available(grid, 1) if shared else nodes
        chosen = [k for k in self.choose(list(population), server_round) if k in nodes]
        here = [k for k in chosen if not self._stays_away(server_round, k)]
        self._dropped = len(chosen) - len(here)
        self._passed_over = len(nodes) - len(chosen) if shared else 0
        return {k: nodes[k] for k in here}

    def _stays_away(self, server_round: int, partition_id: int) -> bool:
        if self.dropout == 0:
            return False
        place = {"server_round": server_round, "partition_id": partition_id}
        return generator(self.seed, Purpose.AVAILABILITY, **place).random() < self.dropout

    def dropped(self) -> dict[str, float]:
        """Return what a round's metrics show of it; nothing where nobody can drop out."""
        return {protocol.DROPPED: self._dropped} if self.dropout else {}

    def _fail(self, server_round: int, lack: NoStep, faults: dict[int, str]) -> None:
        """Count a round without a step, unless it has none only because of nodes that were not asked."""
        if (self._dropped or self._passed_over) and not faults and isinstance(lack, Lacking):
            if self._dropped:
                said = "round %d: %d nodes dropped out (%s): the model stays as it was"
                logger.info(said, server_round, self._dropped, lack)
            return
        super()._fail(server_round, lack, faults)
