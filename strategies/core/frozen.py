"""Send frozen parameters to each node once, and keep them out of the update rule.

The node's half is :mod:`clients.frozen`. Frozen parameters are in the models that the strategy returns, and
so in what is evaluated, saved and resumed. A node is sent them until it answers with their hash, and again
after a failure, or where another process holds the partition. A node of another ClientApp never answers so,
and is sent whole models.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from strategies.parts.layout import Layout
from strategies.shared import protocol
from strategies.shared.arrays import remove_arrays

from .client_registry import ClientRegistry
from .replies import read_config


def require_frozen(names: tuple[str, ...], arrays: ArrayRecord) -> None:
    """Raise ``ValueError`` for names that the model does not have."""
    if isinstance(names, str):  # whose letters would be names
        raise ValueError(f"frozen_names={names!r}: expected a tuple of names")
    if unknown := [name for name in names if name not in arrays]:
        raise ValueError(f"frozen_names: the model has no {unknown[0]!r}")


@dataclass(frozen=True)
class FrozenParameters:
    """The frozen parameters of a model, and which nodes have them (``registry.frozen_at``)."""

    layout: Layout
    registry: ClientRegistry

    def split(
        self, content: RecordDict, receivers: Mapping[int, int]
    ) -> tuple[RecordDict, dict[int, RecordDict]]:
        """Return what is sent to nodes that have them, and, by partition, to those that lack them."""
        layout = self.layout
        arrays, config = content.array_records[protocol.ARRAYS], content.config_records[protocol.CONFIG]
        hashed = ConfigRecord({**config, protocol.FROZEN: layout.frozen_hash})
        rest = remove_arrays(arrays, layout.frozen)
        trained = RecordDict({**content, protocol.ARRAYS: rest, protocol.CONFIG: hashed})
        named = ConfigRecord({**hashed, protocol.FROZEN_NAMES: list(layout.frozen)})
        whole = RecordDict({**content, protocol.CONFIG: named})
        return trained, dict.fromkeys(
            (k for k, node in receivers.items() if not self._has_frozen(k, node)), whole
        )

    def _has_frozen(self, partition_id: int, node: int) -> bool:
        holder, known = self.registry.frozen_at.get(partition_id, (None, ""))
        return known == self.layout.frozen_hash and holder in (None, node)

    def record_receivers(self, sent: Mapping[int, Message], answered: Mapping[int, Message]) -> None:
        """Note which of the nodes that were asked have them, by their replies."""
        expected, holders = self.layout.frozen_hash, self.registry.frozen_at
        for k, message in sent.items():
            reply = answered.get(k)
            if (
                reply is not None
                and reply.has_content()
                and read_config(reply, protocol.FROZEN) == expected
            ):
                holders[k] = message.metadata.dst_node_id, expected
            else:
                holders.pop(k, None)


def known_hashes(registry: ClientRegistry) -> dict[int, Any]:
    """Return which partitions have frozen parameters, as a run resumes from it."""
    return {k: digest for k, (_, digest) in registry.frozen_at.items()}
