"""Match replies to messages, check what the nodes sent, and stack what is sound as rows of matrices.

A node that failed, was late, or sent NaN, other shapes or no ``num-examples`` is left out of the
round and named with its reason. Flower's own strategies let a NaN through; these do not.
"""

import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigScalar, Message, MetricRecord
from torch import Tensor

from strategies.parts.layout import Layout
from strategies.parts.updates import SUMS, Updates
from strategies.parts.weighting import Uniform, Weighting
from strategies.shared import protocol
from strategies.shared.arrays import SharedMean, values_of
from strategies.shared.checks import void_measures
from strategies.shared.compression import Compression, NoCompression
from strategies.shared.flower_private import SUPERLINK_NODE_ID

from .strategy import get_error_reason

logger = logging.getLogger("flwr.strategies")

LogFunction = Callable[[str], None]  # takes a line for the log
REPLY_RECORDS = (protocol.ARRAYS, protocol.METRICS, protocol.CODES, protocol.CONTROL)
RECORDS_BESIDE_ARRAYS = (protocol.CODES, protocol.CONTROL)
Records = dict[str, dict[str, Tensor]]  # of a reply: the arrays of each further record, by name
PARTS_WITH_SUMS = ("weighting", "aggregation", "mask", "step_size", "privacy")  # that may need each update
MAX_EXAMPLES = 2.0**53  # beyond, a count is not exact, and a sum of weights may overflow


class Fault(Exception):
    """Why a node's reply is left out."""


class MissingReplyKey(Fault):
    """It lacks what this project's ClientApp sends when it is asked to, and another may not know of."""


class DivergedMetrics(Fault):
    """Metrics that are no numbers, in a reply that is sound but for them."""


def arrays_of(message: Message, extra: str | None = None) -> ArrayRecord | None:
    """Return the model in a message: the record named ``arrays``, else the first that is not ``extra``."""
    record = message.content.get(protocol.ARRAYS)
    if isinstance(record, ArrayRecord):
        return record
    return next((arrays for name, arrays in message.content.array_records.items() if name != extra), None)


def metrics_of(message: Message) -> MetricRecord:
    """Return the metrics in a message: the record named ``metrics``, else the first, else none."""
    record = message.content.get(protocol.METRICS)
    if isinstance(record, MetricRecord):
        return record
    return next(iter(message.content.metric_records.values()), MetricRecord())


def read_config(message: Message, key: str) -> ConfigScalar | None:
    """Return what a node says of itself besides its metrics; None where it says nothing."""
    config = message.content.get(protocol.CONFIG)
    return config.get(key) if isinstance(config, ConfigRecord) else None  # type: ignore[return-value]


def num_examples_of(message: Message, key: str = protocol.NUM_EXAMPLES) -> float:
    """Return on how many examples the node worked."""
    value = metrics_of(message)[key]
    return float(value)  # type: ignore[arg-type]


def drop_diagnostics(reply: Message, needed: Container[str], log: LogFunction) -> None:
    """Take metrics that are NaN or infinite out of a reply; ``log`` is called with a line for each.

    Where a loss, or a metric that the round needs, is one of them, all stay: the node will be left out.
    """
    metrics = metrics_of(reply)
    lost = {n: v for n, v in metrics.items() if isinstance(v, float) and not math.isfinite(v)}
    if any(name in needed or name.endswith("loss") for name in lost):
        return
    for name, value in lost.items():
        del metrics[name]
        log(f"{name!r} of a node is {value}: it is left out, and the node's update counts")


def scalar_metrics(messages: Iterable[Message], log: LogFunction = logger.warning) -> dict[str, Tensor]:
    """Return {name: [K] in float64}: every scalar metric that all messages carry; ``log`` the others."""
    records = [metrics_of(message) for message in messages]
    names = set.intersection(*map(set, records)) if records else set()
    if lost := sorted(set().union(*records) - names):
        log(f"not every node sent {', '.join(map(repr, lost))}: not averaged")
    return {
        name: torch.tensor([record[name] for record in records], dtype=torch.float64)
        for name in sorted(names - {protocol.PARTITION_ID})
        if all(type(record[name]) in (int, float) for record in records)
    }


def find_missing_metrics(replies: Mapping[int, Message]) -> dict[int, str]:
    """Say which of the replies, {partition id: reply}, lack a metric that more than half of them carry.

    A metric is averaged only if all carry it, so one node could suppress it for all.
    """
    numbers = {
        k: {n for n, v in metrics_of(r).items() if type(v) in (int, float)} for k, r in replies.items()
    }
    counts = Counter(name for names in numbers.values() for name in names)
    common = sorted(name for name, count in counts.items() if 2 * count > len(replies))
    lacks = {k: [name for name in common if name not in names] for k, names in numbers.items()}
    return {k: f"sent no {names[0]!r}, as most do" for k, names in lacks.items() if names}


def mean_metrics(metrics: dict[str, Tensor], num_examples: Tensor) -> dict[str, float]:
    """Average each metric [K] over the nodes, weighted by their numbers of examples [K]."""
    weights = num_examples / num_examples.sum()
    return {name: float(weights @ values) for name, values in metrics.items()}


def clamp_mean(mean: float, values: Sequence[float]) -> float:
    """Return a mean that rounding has not taken beyond its values: of equal ones, their value.

    Where all nodes have accuracy 1, shares of examples may add up to 0.9999999999999999.
    """
    return min(max(mean, min(values)), max(values))


def cap_weights(weights: Tensor, share: float) -> Tensor:
    """Return weights [K] of which none is more than a share of their sum; all equal where that cannot be.

    The largest are lowered, all to the same value; the others stay as they are.
    """
    if share * len(weights) <= 1:
        return torch.ones_like(weights)
    falling = weights.sort(descending=True).values
    for count in range(len(weights)):  # so many are lowered, each to its share of the sum
        rest = falling[count:].sum()
        cap = share * rest / (1 - count * share)
        if falling[count] <= (cap if count else share * rest):
            return weights.minimum(cap) if count else weights
    return torch.ones_like(weights)


def read_measures(reply: Message) -> dict[str, float]:
    """Return the numbers of an evaluation, each measure NaN where the loss is, whatever the ClientApp."""
    numbers = {name: value for name, value in metrics_of(reply).items() if isinstance(value, int | float)}
    return void_measures({name: float(value) for name, value in numbers.items()})


def find_void_means(diverged: Iterable[Message], num_sound: int, key: str) -> dict[str, float]:
    """Return the measures that are NaN in the mean over nodes: where half or more of the nodes diverged.

    Fewer do not void the mean. ``key`` names the number of examples, which is no measure.
    """
    replies = list(diverged)
    measures = [pair for reply in replies for pair in read_measures(reply).items()]
    names = sorted({name for name, value in measures if not math.isfinite(value) and name != key})
    return dict.fromkeys(names, math.nan) if len(replies) >= num_sound else {}


def match_replies(messages: Mapping[int, Message], replies: Iterable[Message]) -> dict[int, Message]:
    """Return the replies to the messages ``messages`` ({partition id: message}), by partition id.

    A reply belongs to the message that it answers, and comes from the node that was asked, or is the
    SuperLink's error in its place. Of several the first counts: no node takes back what it sent. Where a
    grid gives messages no id, a reply belongs to the node that sent it.
    """
    by_message = {message.metadata.message_id: k for k, message in messages.items()}
    by_node = {m.metadata.dst_node_id: k for k, m in messages.items() if not m.metadata.message_id}
    by_partition: dict[int, Message] = {}
    for reply in replies:
        sender = reply.metadata.src_node_id
        answered = reply.metadata.reply_to_message_id
        partition_id = by_message.get(answered) if answered else None
        partition_id = by_node.get(sender) if partition_id is None else partition_id
        if partition_id is None or partition_id in by_partition:
            continue
        instead = reply.has_error() and sender == SUPERLINK_NODE_ID
        if instead or sender == messages[partition_id].metadata.dst_node_id:
            by_partition[partition_id] = reply
    return by_partition


def select_group_replies(name: str, replies: Iterable[Message]) -> list[Message]:
    """Return the replies to a group's messages, and errors whose group the SuperLink does not tell."""
    return [reply for reply in replies if reply.metadata.group_id in (name, "")]


def check_reply(
    reply: Message | None, partition_id: int | None = None, key: str = protocol.NUM_EXAMPLES
) -> Message:
    """Return a node's reply if its metrics are finite and say on how many examples it worked.

    With a ``partition_id`` a reply that names another partition is a fault. ``key`` names the metric that is
    the number of examples.

    Raises
    ------
    DivergedMetrics : where all is well but that some metrics are NaN or infinite
    Fault : otherwise
    """
    if reply is None:
        raise Fault("did not answer in time")
    if reply.has_error():
        raise Fault(get_error_reason(reply))
    require_one(reply.content.metric_records, protocol.METRICS)
    for name, value in metrics_of(reply).items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int) and abs(number) > sys.float_info.max:
                raise Fault(f"sent a {name!r} of {number.bit_length()} bits, expected a number")
    claimed = metrics_of(reply).get(protocol.PARTITION_ID, partition_id)
    if partition_id is not None and claimed != partition_id:
        raise Fault(f"answered for partition {str(claimed)[:20]}")
    require_number(reply, key, MAX_EXAMPLES)
    for name, value in metrics_of(reply).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise DivergedMetrics(f"sent {name!r}={value}, expected a number")
    return reply


def require_one(records: Mapping[str, object], name: str, others: Container[str | None] = ()) -> None:
    """Raise ``Fault`` for several records of one kind, none of which has the ``name`` that is read."""
    names = [key for key in records if key not in others]
    if len(names) > 1 and name not in names:
        kind = type(records[names[0]]).__name__
        listed = ", ".join(map(repr, names[:3]))
        raise Fault(f"sent {len(names)} records of the kind {kind}, {listed}, and none is named {name!r}")


def require_number(reply: Message, name: str, most: float = sys.float_info.max) -> None:
    """Raise ``Fault`` for a reply without a metric of this name, between 0 and ``most``."""
    value = metrics_of(reply).get(name)
    if type(value) not in (int, float):
        raise Fault(f"sent no {name!r}")
    if not 0 <= value <= most:  # type: ignore[operator]
        raise Fault(f"sent {name}={value}, expected a number from 0 to {most:.3g}")


def require_layout(
    record: ArrayRecord | None, what: str, layout: Layout, *, parameters_only: bool = False
) -> ArrayRecord:
    """Return a record that has the model's names and shapes; raise ``Fault`` for another."""
    if record is None:
        raise Fault(f"sent no {what}")
    if mismatch := layout.mismatch(record, parameters_only=parameters_only):
        raise Fault(mismatch)
    return record


def mean_lists(replies: Iterable[Message], weights: Tensor, log: LogFunction) -> dict[str, list[float]]:
    """Average each metric that is a list in every reply by element, as Flower does, with weights [K].

    ``log`` is given a line for one that cannot be averaged.
    """
    records = [metrics_of(reply) for reply in replies]
    everywhere = set.intersection(*map(set, records)) if records else set()
    shares, means = weights / weights.sum(), dict[str, list[float]]()
    for name in sorted(everywhere):
        values: list[Any] = [record[name] for record in records]
        if not any(isinstance(value, list) for value in values):
            continue
        lengths = sorted({len(value) if isinstance(value, list) else 0 for value in values})
        if len(lengths) > 1:
            log(f"{name!r} is a list of {lengths[0]} to {lengths[-1]} numbers: not averaged")
        elif lengths[0]:
            means[name] = (shares @ torch.tensor(values, dtype=torch.float64)).tolist()
    return means


def merge_own_metrics(nodes: Mapping[str, Any], own: Mapping[str, Any], log: LogFunction) -> dict[str, Any]:
    """Return both; a metric of the nodes that has the name of one of our own is kept as ``node-NAME``."""
    metrics = dict(nodes)
    for name in sorted(nodes.keys() & own.keys()):
        metrics[f"node-{name}"] = metrics.pop(name)
        log(f"nodes send {name!r}, which the strategy reports itself: theirs is kept as 'node-{name}'")
    return metrics | dict(own)


def is_of_other_app(reply: Message) -> bool:
    """Say whether a reply is of another ClientApp than this project's, which says for which partition."""
    return protocol.PARTITION_ID not in metrics_of(reply)


def warn_of_unread_records(replies: Iterable[Message], extras: Iterable[str], log: LogFunction) -> None:
    """Name the records of replies that nothing reads; ``extras`` are read beside the usual ones."""
    known = {*REPLY_RECORDS, *extras}
    for reply in replies:
        records = {**reply.content.array_records, **reply.content.metric_records}
        named = protocol.ARRAYS in records, protocol.METRICS in records
        for name, record in records.items():
            kind = type(record).__name__
            if name not in known and named[kind == "MetricRecord"]:
                log(f"nodes send the {kind} {name!r} beside the one that is read: it is not used")


# Stacking: the replies of a round are read one by one, and what is sound is kept as rows of matrices.


class Workspace:
    """Scratch space that is written over, round by round: fresh pages cost more than arithmetic.

    Parameters
    ----------
    keeps_parameters : whether somebody needs the old parameters after the round, too

    Attributes
    ----------
    pair : two spare vectors [P] for the next round's mean and factors; None without a mask
    """

    def __init__(self, *, keeps_parameters: bool = False) -> None:
        self.keeps_parameters = keeps_parameters
        self.pair: tuple[Tensor, Tensor] | None = None
        self._tensors: dict[str, Tensor] = {}

    def rows(self, name: str, count: int, like: Tensor) -> Tensor:
        """Return an uninitialised matrix [count, P], valid until the next one of this name.

        ``like`` is a vector [P] of its dtype, and on its device.
        """
        tensor, expected = self._tensors.pop(name, None), (len(like), like.dtype, like.device)
        if (
            tensor is None
            or len(tensor) < count
            or (tensor.shape[1], tensor.dtype, tensor.device) != expected
        ):
            del tensor  # before there is another
            tensor = like.new_empty(count, len(like))
        self._tensors[name] = tensor
        return tensor[:count]

    def release(self, parameters: Tensor, factors: Tensor) -> None:
        """Take back two vectors [P] after a step: the parameters before it, and a mask's factors."""
        self.pair = None if self.keeps_parameters else (parameters, factors)


def read_delta(
    reply: Message, extra: str | None, layout: Layout, start: Tensor, out: Tensor
) -> ArrayRecord:
    """Write Delta = w_t - w into ``out`` [P], ``start`` [P] being w_t; return the reply's arrays.

    Raises ``Fault`` for arrays that are not the model's.
    """
    record = require_layout(arrays_of(reply, extra), "arrays", layout)
    layout.flatten_parameters(record, out=out)
    torch.sub(start, out, out=out)
    return record


def read_coded_delta(
    reply: Message,
    extra: str | None,
    layout: Layout,
    compression: Compression,
    start: Tensor,
    out: Tensor,
) -> ArrayRecord:
    """Do as :func:`read_delta` for a reply with codes; return its plain arrays.

    A node may compress each of the parameters, or none: a stock client's reply has them all as they are.

    Raises
    ------
    Fault : for arrays that are not the model's
    ValueError : for invalid codes
    """
    codes = _codes_of(reply, layout)
    rest = tuple(layer for layer in layout.layers if layer.name not in codes)
    record = read_delta(reply, extra, replace(layout, layers=rest) if codes else layout, start, out)
    for layer in layout.parameters if codes else ():
        if layer.name in codes:
            values = compression.decode(_bytes_of(codes[layer.name]), layer.shape, np.dtype(layer.dtype))
            out[layer.columns] = torch.from_numpy(values.flatten()).to(out)
    return record


def _codes_of(reply: Message, layout: Layout) -> ArrayRecord:
    """Return a reply's codes."""
    codes = reply.content.get(protocol.CODES)
    if not isinstance(codes, ArrayRecord):
        return ArrayRecord()
    known = {layer.name for layer in layout.parameters}
    if strange := [name for name in codes if name not in known]:
        raise Fault(f"sent a code for {strange[0]!r}, which is no parameter of the model")
    return codes


def _bytes_of(array: Array) -> bytes:
    values = values_of(array)
    if values.dtype != torch.uint8 or values.ndim != 1:
        raise ValueError(f"a code of {values.ndim} dimensions of {values.dtype}, expected bytes")
    return values.cpu().numpy().tobytes()


@dataclass(frozen=True)
class SoundReplies:
    """One round's replies, sorted by partition id.

    Parameters
    ----------
    updates : the sound ones, stacked
    extra : [K, P], what else each of them carries (SCAFFOLD's variates); None when nothing was asked for
    faults : {partition id: reason} for every node that was asked and is left out
    has_moved : whether any of the sound ones holds another parameter than was sent
    replies : the sound ones, as they came, by partition id
    missing_metrics : those faults whose nodes run another ClientApp than this project's
    records : the further records of the sound ones, by partition id, name and array's name
    """

    updates: Updates
    extra: Tensor | None
    faults: dict[int, str]
    has_moved: bool
    replies: dict[int, Message]
    missing_metrics: dict[int, str]
    records: dict[int, Records] = field(default_factory=dict)

    def without(self, faults: Mapping[int, str]) -> "SoundReplies":
        """Return a copy that leaves some nodes out, each for a reason."""
        rows = [row for row, k in enumerate(self.updates.partition_ids) if k not in faults]
        extra = None if self.extra is None else self.extra[rows]
        updates = self.updates.without(faults)
        replies = {k: reply for k, reply in self.replies.items() if k not in faults}
        records = {k: of_node for k, of_node in self.records.items() if k not in faults}
        return SoundReplies(
            updates,
            extra,
            {**self.faults, **faults},
            self.has_moved,
            replies,
            self.missing_metrics,
            records,
        )

    def count_replies(self) -> dict[str, float]:
        """Return what a round's metrics show of it."""
        return {protocol.REPLIES: len(self.updates.partition_ids), protocol.FAILED: len(self.faults)}


class Stack:
    """The rows of one round.

    Parameters
    ----------
    layout : of the model
    start : [P], the parameters that the nodes started from: Delta_k = start - w_k
    scratch : what is stacked lies in it, until the next round is collected
    max_rows : how many rows there can be (:func:`count_stack_rows`)
    extra : the name of a further ArrayRecord, shaped as the parameters, that each reply must carry
    needed : the names of metrics that each reply must carry, numbers, 0 or above
    compression : what nodes were asked for; None for plain weights
    required_keys : keys that each reply's configuration must carry, and the fault of one that does not
    examples_key : the metric that says on how many examples a node trained
    log : called with lines for the log
    records : the names of further ArrayRecords, of any shapes, that each reply must carry
    check_records : raises ``ValueError`` for those of a reply that are not as they should be
    start_of : returns what the node of a reply started from, where not all started from ``start``; raises
        ``ValueError`` for a reply that does not tell
    """

    def __init__(
        self,
        layout: Layout,
        start: Tensor,
        scratch: Workspace,
        max_rows: int,
        extra: str | None = None,
        needed: Iterable[str] = (),
        compression: Compression | None = None,
        required_keys: Mapping[str, str] = MappingProxyType({}),
        examples_key: str = protocol.NUM_EXAMPLES,
        log: Callable[[str], None] = logger.warning,
        records: tuple[str, ...] = (),
        check_records: Callable[[Records], None] | None = None,
        start_of: Callable[[Message], Tensor] | None = None,
    ) -> None:
        self.log, self.start_of = log, start_of
        self.records, self.check_records = records, check_records
        self._read: dict[int, Records] = {}
        self.layout, self.start, self.compression = layout, start, compression
        self.required_keys, self.examples_key = required_keys, examples_key
        self.extra, self.needed = extra, tuple(needed)
        self.deltas = scratch.rows("deltas", max_rows, start)
        self.buffers = torch.empty(max_rows, layout.num_buffers, dtype=torch.float64)
        self.extras = scratch.rows("extras", max_rows, start) if extra else None
        self._sound_replies: dict[int, Message] = {}
        self._faults: dict[int, str] = {}
        self._missing_metrics: dict[int, str] = {}
        self._has_moved = False
        self._shared: dict[int, int] = {}  # the row of each mean that several replies carry
        self._row_sums: dict[int, Mapping[str, Tensor]] = {}  # of these rows
        self._rows: list[int] = []  # of each sound reply
        self._num_rows = 0  # rows that are written

    def read_all(
        self, partition_ids: Iterable[int], answered: Mapping[int, Message], has_partition_ids: bool
    ) -> SoundReplies:
        """Return what the partitions that were asked have answered, in their order."""
        for partition_id in sorted(partition_ids):
            self.read(partition_id, answered.get(partition_id), has_partition_ids)
        return self.collect()

    def read(self, partition_id: int, reply: Message | None, has_partition_ids: bool = False) -> None:
        """Stack the reply of a node, or note why it is left out.

        ``has_partition_ids`` says that nodes have said which partition they hold: a reply for another one is a fault.
        """
        try:
            if reply is not None and not reply.has_error():
                drop_diagnostics(reply, (self.examples_key, *self.needed), self.log)
            sound = check_reply(reply, partition_id if has_partition_ids else None, self.examples_key)
            row = self._row_of(sound)
            records = self._records_of(sound)
        except Fault as fault:
            self._faults[partition_id] = str(fault)
            if isinstance(fault, MissingReplyKey):
                self._missing_metrics[partition_id] = str(fault)
        except (ValueError, TypeError, IndexError) as error:  # bytes that are not such an array
            self._faults[partition_id] = f"sent unreadable arrays ({' '.join(str(error).split())})"
        else:
            self._sound_replies[partition_id] = sound
            if records:
                self._read[partition_id] = records
            self._rows.append(row)
            self._num_rows = max(self._num_rows, row + 1)

    def _row_of(self, reply: Message) -> int:
        """Return the row of a reply, written now or, for a mean that several replies carry, before."""
        if num_examples_of(reply, self.examples_key) == 0:
            raise Fault("trained on no examples")
        for name in self.needed:
            if name not in metrics_of(reply):
                raise MissingReplyKey(f"sent no {name!r}")
            require_number(reply, name)
        for key, fault in self.required_keys.items():
            if read_config(reply, key) is None:
                raise MissingReplyKey(fault)
        require_one(
            reply.content.array_records,
            protocol.ARRAYS,
            (self.extra, *self.records, *RECORDS_BESIDE_ARRAYS),
        )
        record = arrays_of(reply, self.extra)
        row = self._shared.get(id(record), self._num_rows)
        if row == self._num_rows:
            self._write(row, reply)
        if isinstance(record, SharedMean):
            self._shared[id(record)] = row
            device = self.start.device  # of vectors; numbers stay in host memory
            self._row_sums[row] = {k: v.to(device) if v.ndim else v for k, v in record.sums.items()}
        return row

    def _write(self, row: int, reply: Message) -> None:
        """Write a reply into a row; the next one writes over it where it is not sound."""
        delta, start = self.deltas[row], self.start
        if self.start_of is not None:
            start = _call_hook(self.start_of, reply)
        if self.compression is None:
            record = read_delta(reply, self.extra, self.layout, start, delta)
        else:
            record = read_coded_delta(reply, self.extra, self.layout, self.compression, start, delta)
        parts = [delta]
        if self.layout.buffers:
            parts.append(self.layout.flatten_buffers(record, out=self.buffers[row]))
        if self.extra and self.extras is not None:
            carried = reply.content.array_records.get(self.extra)
            if carried is None:
                raise MissingReplyKey(f"sent no {self.extra!r} record")
            record = require_layout(carried, f"{self.extra!r} record", self.layout, parameters_only=True)
            parts.append(self.layout.flatten_parameters(record, out=self.extras[row]))
        total = float(delta.sum())
        unsure = parts[1:] if math.isfinite(total) else parts  # a finite sum has finite terms
        if not all(map(_is_finite, unsure)):
            raise Fault("sent NaN or infinite values")
        if self.layout.buffers and (beyond := self.layout.find_overflow(self.buffers[row])):
            raise Fault(f"sent {beyond}")
        self._has_moved = self._has_moved or total != 0

    def _records_of(self, reply: Message) -> Records:
        """Return a reply's further records, read, finite and checked."""
        read: Records = {}
        for name in self.records:
            record = reply.content.array_records.get(name)
            if record is None:
                raise MissingReplyKey(f"sent no {name!r} record")
            read[name] = {key: values_of(array) for key, array in record.items()}
            if not all(map(_is_finite, read[name].values())):
                raise Fault(f"sent NaN or infinite values in {name!r}")
        if read and self.check_records is not None:
            _call_hook(self.check_records, read)
        return read

    def collect(self) -> SoundReplies:
        """Return all that was read."""
        num_rows = self._num_rows
        metrics = scalar_metrics(self._sound_replies.values(), self.log)
        updates = Updates(
            self.deltas[:num_rows],
            self.buffers[:num_rows],
            metrics.pop(self.examples_key, torch.zeros(0, dtype=torch.float64)),
            tuple(self._sound_replies),
            self.layout,
            self.start,
            metrics,
            torch.tensor(self._rows) if num_rows < len(self._rows) else None,
            {row: sums for row, sums in self._row_sums.items() if sums},
        )
        moved = self._has_moved or bool(updates.deltas.any())  # a sum of 0 may be of values that cancel out
        extra = None if self.extras is None else self.extras[:num_rows]
        return SoundReplies(
            updates, extra, self._faults, moved, self._sound_replies, self._missing_metrics, self._read
        )


def count_stack_rows(partition_ids: Iterable[int], answered: Mapping[int, Message]) -> int:
    """Return how many rows the partitions that were asked can take; replies with one mean share a row."""
    shared = [reply for reply in answered.values() if reply.has_content()]
    means = [id(record) for reply in shared if isinstance(record := arrays_of(reply), SharedMean)]
    return len(list(partition_ids)) - len(means) + len(set(means))


def _call_hook(hook: Callable[[Any], Any], argument: Any) -> Any:
    """Return what a strategy's hook says of a reply; the ``ValueError`` of one is a fault of the reply."""
    try:
        return hook(argument)
    except ValueError as error:
        raise Fault(str(error)) from error


def _is_finite(values: Tensor) -> bool:
    return math.isfinite(values.sum()) or bool(values.isfinite().all())


# Partial sums: nodes' models become their weighted mean before they travel to the server.
#
#     mean_S = sum_{k in S} c_k w_k / sum_{k in S} c_k,      alpha_k = c_k / sum c
#
# The mean of such means, each with the weight of its nodes, is the round's mean, to rounding: the sum is
# taken in another order. The same holds of the sums that a part asks for by name. A strategy that needs
# nothing else can be folded.


def list_extra_records(strategy: Any) -> tuple[str, ...]:
    """Return the names of the records that each reply carries beside the model."""
    extra = getattr(strategy, "extra_record", None)
    return (*((extra,) if extra else ()), *getattr(strategy, "extra_records", ()))


def make_partial_sums(strategy: Any, arrays: ArrayRecord) -> "PartialSums":
    """Return what folds the models of nodes that were sent ``arrays``.

    Raises
    ------
    ValueError : where the strategy needs each node's update
    """
    names: list[str] = []
    for slot in PARTS_WITH_SUMS:
        part = getattr(strategy, slot, strategy)
        sums = vars(type(part)).get("sums")  # not inherited
        if sums is None:
            raise ValueError(f"{slot if part is not strategy else 'strategy'}={type(part).__name__}")
        names += sums
    if type(strategy.compression) is not NoCompression:
        raise ValueError(f"compression={type(strategy.compression).__name__}")
    owner = next(kind for kind in type(strategy).__mro__ if "take_step" in vars(kind))
    if (sums := vars(owner).get("sums")) is None:
        raise ValueError(f"strategy={strategy.name}, with a step of its own,")
    weighting = type(strategy.weighting)
    if getattr(strategy, "is_uniform_mean", False) and weighting is not Uniform:
        raise ValueError(f"strategy={strategy.name} with weighting={weighting.__name__}")
    if strategy.weighting.examples_key != protocol.NUM_EXAMPLES:
        raise ValueError("weighting.key")
    if getattr(strategy, "max_norm", None) is not None:
        raise ValueError("participation.max_norm")
    if extra := next(iter(list_extra_records(strategy)), None):
        raise ValueError(f"strategy={strategy.name}, whose replies carry {extra!r},")
    layout = Layout.of(arrays, strategy.buffer_names, strategy.frozen_names)
    layout = replace(layout, frozen={}, names=())  # as replies are
    return PartialSums(
        layout, arrays, strategy.weighting, strategy.required_reply_keys(), dict.fromkeys([*names, *sums])
    )


class PartialSums:
    """The weighted mean of the models that were added, in float64, and the sums that parts ask for.

    Parameters
    ----------
    layout : of the model
    arrays : what the nodes started from
    weighting : how much each node counts
    required_keys : as in :class:`Stack`
    names : of the sums
    """

    def __init__(
        self,
        layout: Layout,
        arrays: ArrayRecord,
        weighting: Weighting,
        required_keys: dict[str, str],
        names: Iterable[str] = (),
    ) -> None:
        self.layout, self.weighting, self.required_keys = layout, weighting, required_keys
        self._start = layout.flatten_parameters(arrays)
        self._scratch = Workspace()
        self._total = 0.0
        self._deltas = torch.zeros(layout.num_parameters, dtype=torch.float64)
        self._buffers = torch.zeros(layout.num_buffers, dtype=torch.float64)
        self._sums = {name: torch.zeros(()) for name in names}

    def add_reply(self, reply: Message) -> bool:
        """Add a node's model, and take it out of the reply; False where the server would leave it out."""
        stack = Stack(self.layout, self._start, self._scratch, 1, required_keys=self.required_keys)
        stack.read(0, reply)
        updates = stack.collect().updates
        if not updates.partition_ids:
            return False
        counts = self.weighting.counts(num_examples_of(reply))
        self._total += counts
        self._deltas.add_(updates.deltas[0], alpha=counts)
        self._buffers.add_(updates.buffers[0], alpha=counts)
        for name, total in self._sums.items():
            values = SUMS[name].function(updates.deltas[0])
            self._sums[name] = total + (counts * values if SUMS[name].is_weighted else values)
        model = arrays_of(reply)
        for name, record in list(reply.content.items()):
            if record is model:
                del reply.content[name]
        return True

    def mean(self) -> ArrayRecord | None:
        """Return the mean of what was added; None where nothing was."""
        if not self._total:
            return None
        parameters = self._start - self._deltas.div_(self._total).to(self._start)
        return self.layout.record(parameters, self._buffers.div_(self._total))

    def sums(self) -> dict[str, Tensor]:
        """Return the sums by name, as :class:`~strategies.Updates` has those of a row: weighted ones are means."""
        return {
            name: total / self._total if SUMS[name].is_weighted else total
            for name, total in self._sums.items()
        }
