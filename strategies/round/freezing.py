"""Freezing: what no node trains travels to each node once, and is no part of the update rule.

The node's half is :mod:`clients.frozen`. Frozen parameters are in the models that the strategy returns, and
so in what is evaluated, saved and resumed. A node is sent them until it answers with their hash, and again
after a failure, or where another process holds the partition. A node of another ClientApp never answers so,
and is sent whole models.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from strategies.parts.layout import Layout
from strategies.shared import protocol
from strategies.shared.frozen import without

from .compressing import Compressing
from .replies import said


@dataclass(kw_only=True, eq=False)
class Freezing(Compressing):
    """Attendance of nodes that keep the model's frozen parameters.

    Parameters
    ----------
    frozen_names : names of arrays that no node changes
    """

    frozen_names: tuple[str, ...] = field(default=(), repr=False)

    _layout: Layout | None = field(default=None, init=False, repr=False)

    def freeze(self, names: Iterable[str]) -> None:
        self.frozen_names = tuple(dict.fromkeys((*self.frozen_names, *names)))

    def require_frozen(self, arrays: ArrayRecord) -> None:
        """Raise ``ValueError`` for names that the model does not have."""
        if isinstance(self.frozen_names, str):  # whose letters would be names
            raise ValueError(f"frozen_names={self.frozen_names!r}: expected a tuple of names")
        if unknown := [name for name in self.frozen_names if name not in arrays]:
            raise ValueError(f"frozen_names: the model has no {unknown[0]!r}")

    def _messages(
        self, content: RecordDict, message_type: str, others: Mapping[int, RecordDict] | None = None
    ) -> list[Message]:
        """Leave frozen parameters out of the messages to the nodes that have them."""
        layout = self._layout
        if layout is None or not layout.frozen:
            return super()._messages(content, message_type, others)
        arrays, config = content.array_records[protocol.ARRAYS], content.config_records[protocol.CONFIG]
        told = ConfigRecord({**config, protocol.FROZEN: layout.frozen_hash})
        rest = without(arrays, layout.frozen)
        trained = RecordDict({**content, protocol.ARRAYS: rest, protocol.CONFIG: told})
        told = ConfigRecord({**told, protocol.FROZEN_NAMES: list(layout.frozen)})
        whole = RecordDict({**content, protocol.CONFIG: told})
        lacking = [k for k, node in self._asked.items() if not self._has_frozen(k, node)]
        return super()._messages(trained, message_type, dict.fromkeys(lacking, whole))

    def _has_frozen(self, partition_id: int, node: int) -> bool:
        holder, known = self._roster.frozen_at.get(partition_id, (None, ""))
        assert self._layout is not None
        return known == self._layout.frozen_hash and holder in (None, node)

    def _listen(self, answered: Mapping[int, Message]) -> None:
        """Note which of the nodes that were asked have the frozen parameters."""
        super()._listen(answered)
        if self._layout is None or not self._layout.frozen:
            return
        expected, holders = self._layout.frozen_hash, self._roster.frozen_at
        for k, message in self._sent.items():
            reply = answered.get(k)
            if reply is not None and reply.has_content() and said(reply, protocol.FROZEN) == expected:
                holders[k] = message.metadata.dst_node_id, expected
            else:
                holders.pop(k, None)

    def _standing(self) -> dict[str, Any]:
        known = {k: digest for k, (_, digest) in self._roster.frozen_at.items()}
        return super()._standing() | ({"frozen_at": known} if self.frozen_names else {})

    def _stand_at(self, state: dict[str, Any]) -> None:
        super()._stand_at(state)
        if (known := state.get("frozen_at")) is None:  # of a strategy whose vectors have everything
            self.frozen_names = ()
            return
        self._roster.frozen_at.update({k: (None, digest) for k, digest in known.items()})
