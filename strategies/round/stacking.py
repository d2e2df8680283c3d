"""Stacking: read a round's replies one by one, and keep what is sound as rows of matrices."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from flwr.app import Message
from torch import Tensor

from strategies.parts.layout import Layout
from strategies.parts.updates import Updates
from strategies.shared import protocol
from strategies.shared.compression import Compression, NoCompression
from strategies.shared.shared_mean import SharedMean

from .buffers import Buffers
from .decoding import decoded
from .replies import (
    Fault,
    LacksOurs,
    arrays_of,
    checked,
    drop_diagnostics,
    fitting,
    metrics_of,
    num_examples_of,
    require_number,
    require_one,
    said,
    scalar_metrics,
)

logger = logging.getLogger("flwr.strategies")
PLAIN = NoCompression()
BESIDE_ARRAYS = (protocol.CODES, protocol.CONTROL)


@dataclass(frozen=True)
class Collected:
    """One round's replies, sorted by partition id.

    Parameters
    ----------
    updates : the sound ones, stacked
    extra : [K, P], what else each of them carries (SCAFFOLD's variates); None when nothing was asked for
    faults : {partition id: reason} for every node that was asked and is left out
    moved : whether any of the sound ones holds another parameter than was sent
    replies : the sound ones, as they came, by partition id
    lacking : those of the faults that nodes have who run another ClientApp than this project's
    """

    updates: Updates
    extra: Tensor | None
    faults: dict[int, str]
    moved: bool
    replies: dict[int, Message]
    lacking: dict[int, str]

    def without(self, faults: Mapping[int, str]) -> "Collected":
        """Return a copy that leaves some nodes out, each for a reason."""
        kept = [row for row, k in enumerate(self.updates.partition_ids) if k not in faults]
        extra = None if self.extra is None else self.extra[kept]
        updates = self.updates.without(faults)
        replies = {k: reply for k, reply in self.replies.items() if k not in faults}
        return Collected(updates, extra, {**self.faults, **faults}, self.moved, replies, self.lacking)

    def counts(self) -> dict[str, float]:
        """Return what a round's metrics show of it."""
        return {protocol.REPLIES: len(self.updates.partition_ids), protocol.FAILED: len(self.faults)}


class Stack:
    """The rows of one round.

    Parameters
    ----------
    layout : of the model
    start : [P], the parameters that the nodes started from: Delta_k = start - w_k
    scratch : what is stacked lies in it, until the next round is collected
    most : how many rows there can be (:func:`rows`)
    extra : the name of a further ArrayRecord, shaped as the parameters, that each reply must carry
    needed : the names of metrics that each reply must carry, numbers, 0 or above
    compression : what nodes were asked for
    evidence : keys that each reply's configuration must carry, and the fault of one that does not
    examples_key : the metric that says on how many examples a node trained
    tell : called with lines for the log
    """

    def __init__(
        self,
        layout: Layout,
        start: Tensor,
        scratch: Buffers,
        most: int,
        extra: str | None = None,
        needed: Iterable[str] = (),
        compression: Compression = PLAIN,
        evidence: Mapping[str, str] = MappingProxyType({}),
        examples_key: str = protocol.NUM_EXAMPLES,
        tell: Callable[[str], None] = logger.warning,
    ) -> None:
        self.tell = tell
        self.layout, self.start, self.compression = layout, start, compression
        self.evidence, self.examples_key = evidence, examples_key
        self.extra, self.needed = extra, tuple(needed)
        self.deltas = scratch.rows("deltas", most, start)
        self.buffers = torch.empty(most, layout.num_buffers, dtype=torch.float64)
        self.extras = scratch.rows("extras", most, start) if extra else None
        self._sound: dict[int, Message] = {}
        self._faults: dict[int, str] = {}
        self._lacking: dict[int, str] = {}
        self._moved = False
        self._shared: dict[int, int] = {}  # the row of each mean that several replies carry
        self._rows: list[int] = []  # of each sound reply
        self._kept = 0  # rows that are written

    def all(self, asked: Iterable[int], answered: Mapping[int, Message], told: bool) -> Collected:
        """Return what the partitions that were asked have answered, in their order."""
        for partition_id in sorted(asked):
            self.read(partition_id, answered.get(partition_id), told)
        return self.collected()

    def read(self, partition_id: int, reply: Message | None, told: bool = False) -> None:
        """Stack the reply of a node, or note why it is left out.

        ``told`` says that nodes have said which partition they hold: a reply for another one is a fault.
        """
        try:
            if reply is not None and not reply.has_error():
                drop_diagnostics(reply, (self.examples_key, *self.needed), self.tell)
            sound = checked(reply, partition_id if told else None, self.examples_key)
            row = self._row_of(sound)
        except Fault as fault:
            self._faults[partition_id] = str(fault)
            if isinstance(fault, LacksOurs):
                self._lacking[partition_id] = str(fault)
        except (ValueError, TypeError, IndexError) as error:  # bytes that are not such an array
            self._faults[partition_id] = f"sent unreadable arrays ({' '.join(str(error).split())})"
        else:
            self._sound[partition_id] = sound
            self._rows.append(row)
            self._kept = max(self._kept, row + 1)

    def _row_of(self, reply: Message) -> int:
        """Return the row that a reply is written into, or has been with another's."""
        if num_examples_of(reply, self.examples_key) == 0:
            raise Fault("trained on no examples")
        for name in self.needed:
            if name not in metrics_of(reply):
                raise LacksOurs(f"sent no {name!r}")
            require_number(reply, name)
        for key, fault in self.evidence.items():
            if said(reply, key) is None:
                raise LacksOurs(fault)
        require_one(reply.content.array_records, protocol.ARRAYS, (self.extra, *BESIDE_ARRAYS))
        record = arrays_of(reply, self.extra)
        row = self._shared.get(id(record), self._kept)
        if row == self._kept:
            self._write(row, reply)
        if isinstance(record, SharedMean):
            self._shared[id(record)] = row
        return row

    def _write(self, row: int, reply: Message) -> None:
        """Write a reply into a row; the next one writes over it where it is not sound."""
        delta = self.deltas[row]
        record = decoded(reply, self.extra, self.layout, self.compression, self.start, delta)
        parts = [delta]
        if self.layout.buffers:
            parts.append(self.layout.flatten_buffers(record, out=self.buffers[row]))
        if self.extra and self.extras is not None:
            found = reply.content.array_records.get(self.extra)
            if found is None:
                raise LacksOurs(f"sent no {self.extra!r} record")
            record = fitting(found, f"{self.extra!r} record", self.layout, parameters_only=True)
            parts.append(self.layout.flatten_parameters(record, out=self.extras[row]))
        total = float(delta.sum())
        unsure = parts[1:] if math.isfinite(total) else parts  # a finite sum has finite terms
        if not all(map(_finite, unsure)):
            raise Fault("sent NaN or infinite values")
        if self.layout.buffers and (beyond := self.layout.beyond(self.buffers[row])):
            raise Fault(f"sent {beyond}")
        self._moved = self._moved or total != 0

    def collected(self) -> Collected:
        """Return all that was read."""
        kept = self._kept
        metrics = scalar_metrics(self._sound.values(), self.tell)
        updates = Updates(
            self.deltas[:kept],
            self.buffers[:kept],
            metrics.pop(self.examples_key, torch.zeros(0, dtype=torch.float64)),
            tuple(self._sound),
            self.layout,
            self.start,
            metrics,
            torch.tensor(self._rows) if kept < len(self._rows) else None,
        )
        moved = self._moved or bool(updates.deltas.any())  # a sum of 0 may be of values that cancel out
        extra = None if self.extras is None else self.extras[:kept]
        return Collected(updates, extra, self._faults, moved, self._sound, self._lacking)


def rows(asked: Iterable[int], answered: Mapping[int, Message]) -> int:
    """Return how many rows the partitions that were asked can take, where some replies carry one mean."""
    shared = [reply for reply in answered.values() if reply.has_content()]
    means = [id(record) for reply in shared if isinstance(record := arrays_of(reply), SharedMean)]
    return len(list(asked)) - len(means) + len(set(means))


def _finite(values: Tensor) -> bool:
    return math.isfinite(values.sum()) or bool(values.isfinite().all())
