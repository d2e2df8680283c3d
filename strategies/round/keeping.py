"""Keeping: nodes that keep something between rounds, and whether they still have it.

A node's variate, private layers, own model or moments lie in the memory of its process. One that is
restarted begins without them, and trains on as if the run had just begun; nothing else would tell.
"""

import logging
from dataclasses import dataclass, field

from flwr.app import Message

from strategies.parts.updates import Updates
from strategies.shared import protocol

from .attendance import Attendance
from .replies import said

logger = logging.getLogger("flwr.strategies")
LOST = "round %d: %s has lost what it kept between rounds (it was restarted?)"


@dataclass(kw_only=True, eq=False)
class Keeping(Attendance):
    """Attendance of nodes of which one that has lost what it kept is named in the log."""

    _keepers: set[int] = field(default_factory=set, init=False, repr=False)  # keep something, by partition

    def _note(
        self, server_round: int, updates: Updates, faults: dict[int, str], answered: dict[int, Message]
    ) -> None:
        super()._note(server_round, updates, faults, answered)
        told = {k: said(answered[k], protocol.KEPT) for k in updates.partition_ids}
        for k in sorted(k for k in self._keepers if told.get(k) is False):
            logger.warning(LOST, server_round, self._roster.called(k))
        self._keepers |= {k for k, kept in told.items() if kept is not None}
