"""Strategies that keep the sum of a state that each node keeps."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from strategies.shared import protocol

from .pseudo_gradient import PseudoGradientStrategy


@dataclass(kw_only=True, eq=False)
class StatefulClientsStrategy(PseudoGradientStrategy):
    """Tells nodes which of their changes have not been counted.

    A change that did not arrive, or came in a round that failed, is not in the server's sum. The next message
    tells the node, which goes back to the state before that change (:mod:`clients.methods.scaffold`).
    """

    _counted: dict[int, int] = field(default_factory=dict, init=False, repr=False)  # round by partition
    _awaited: set[int] = field(default_factory=set, init=False, repr=False)  # asked, and not counted since

    @property
    def has_stateful_nodes(self) -> bool:
        return True

    def make_content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        extra = ConfigRecord(dict(config))
        if lost := [k for k in self._recipients if k in self._awaited or k not in self._counted]:
            extra[protocol.CONTROL_LOST] = lost
            extra[protocol.CONTROL_COUNTED] = [self._counted.get(k, 0) for k in lost]
        self._awaited |= self._recipients.keys()
        return super().make_content(server_round, arrays, extra)

    def _roll_back(self, server_round: int) -> ArrayRecord | None:
        """Return to the last good model; the sums begin anew, at the server and at the nodes."""
        arrays = super()._roll_back(server_round)
        if arrays is not None:
            self._counted, self._awaited = {}, set()
            self.clear_sum()
        return arrays

    def clear_sum(self) -> None:
        """Take 0 for the sum of what the nodes keep, when a ruined model is taken back.

        A subclass defines it, without effect where the server keeps no sum. The nodes are told that none of
        their changes counts.
        """
        raise NotImplementedError

    def count_changes(self, server_round: int, partition_ids: Iterable[int]) -> None:
        """Note that the changes of these partitions are in the sum; for the subclass to call, after each step."""
        self._counted |= dict.fromkeys(partition_ids, server_round)
        self._awaited -= set(partition_ids)

    def population_size(self) -> int:
        """Return N: in a group, the number of its members."""
        if self.members is not None:
            return len(self.members)
        return self.num_nodes or len(set(self.registry.partition_of.values()))

    def state_dict(self) -> dict[str, Any]:
        own = {"counted": dict(self._counted), "awaited": sorted(self._awaited)}
        return super().state_dict() | own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._counted = dict(state["counted"])
        self._awaited = set(state["awaited"])
