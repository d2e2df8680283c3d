"""Match replies to messages, and check what the nodes sent.

A node that failed, was late, or sent NaN, other shapes or no ``num-examples`` is left out of the
round and named with its reason. Flower's own strategies let a NaN through; these do not.
"""

import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, ConfigScalar, Message, MetricRecord
from torch import Tensor

from strategies.parts.layout import Layout
from strategies.shared import protocol
from strategies.shared.checks import void_measures
from strategies.shared.flower_private import SUPERLINK_NODE_ID

from .strategy import reason_of

logger = logging.getLogger("flwr.strategies")

Tell = Callable[[str], None]  # takes a line for the log
OF_REPLIES = (protocol.ARRAYS, protocol.METRICS, protocol.CODES, protocol.CONTROL)
MOST_EXAMPLES = 2.0**53  # beyond, a count is not exact, and a sum of weights may overflow


class Fault(Exception):
    """Why a node's reply is left out."""


class LacksOurs(Fault):
    """It lacks what this project's ClientApp sends when it is asked to, and another may not know of."""


class Diverged(Fault):
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


def drop_diagnostics(reply: Message, needed: Container[str], tell: Tell) -> None:
    """Take metrics that are NaN or infinite out of a reply; ``tell`` is called with a line for each.

    Where a loss is none, or what the round needs, all stay: the node's update is no good.
    """
    metrics = metrics_of(reply)
    lost = {n: v for n, v in metrics.items() if isinstance(v, float) and not math.isfinite(v)}
    if any(name in needed or name.endswith("loss") for name in lost):
        return
    for name, value in lost.items():
        del metrics[name]
        tell(f"{name!r} of a node is {value}: it is left out, and the node's update counts")


def scalar_metrics(messages: Iterable[Message], tell: Tell = logger.warning) -> dict[str, Tensor]:
    """Return {name: [K] in float64}: every scalar metric that all messages carry; ``tell`` the others."""
    records = [metrics_of(message) for message in messages]
    names = set.intersection(*map(set, records)) if records else set()
    if lost := sorted(set().union(*records) - names):
        tell(f"not every node sent {', '.join(map(repr, lost))}: not averaged")
    return {
        name: torch.tensor([record[name] for record in records], dtype=torch.float64)
        for name in sorted(names - {protocol.PARTITION_ID})
        if all(type(record[name]) in (int, float) for record in records)
    }


def lacking(replies: Mapping[int, Message]) -> dict[int, str]:
    """Say which of the replies, {partition id: reply}, lack a metric that more than half of them carry.

    A metric is averaged where all carry it: one node would take it from all of them.
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


def within(mean: float, values: Sequence[float]) -> float:
    """Return a mean that rounding has not taken beyond its values: of equal ones, their value.

    Where all nodes have accuracy 1, shares of examples may add up to 0.9999999999999999.
    """
    return min(max(mean, min(values)), max(values))


def capped(weights: Tensor, share: float) -> Tensor:
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


def measures_of(reply: Message) -> dict[str, float]:
    """Return the numbers of an evaluation, each measure NaN where the loss is, also of a foreign node."""
    numbers = {name: value for name, value in metrics_of(reply).items() if isinstance(value, int | float)}
    return void_measures({name: float(value) for name, value in numbers.items()})


def void_mean(diverged: Iterable[Message], num_sound: int, key: str) -> dict[str, float]:
    """Return the measures that are NaN in the mean over nodes: where half or more have none. Fewer may not
    spoil it for all. ``key`` names the number of examples, which is no measure.
    """
    replies = list(diverged)
    measures = [pair for reply in replies for pair in measures_of(reply).items()]
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


def of_group(name: str, replies: Iterable[Message]) -> list[Message]:
    """Return the replies to a group's messages, and errors whose group the SuperLink does not tell."""
    return [reply for reply in replies if reply.metadata.group_id in (name, "")]


def checked(
    reply: Message | None, partition_id: int | None = None, key: str = protocol.NUM_EXAMPLES
) -> Message:
    """Return the reply of a node when it is one, of numbers, and tells on how many examples it worked.

    With a ``partition_id`` the reply is for this one, where it says for which. ``key`` names the metric
    that is the number of examples.

    Raises
    ------
    Diverged : where all is well but that some metrics are NaN or infinite
    Fault : otherwise
    """
    if reply is None:
        raise Fault("did not answer in time")
    if reply.has_error():
        raise Fault(reason_of(reply))
    require_one(reply.content.metric_records, protocol.METRICS)
    for name, value in metrics_of(reply).items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int) and abs(number) > sys.float_info.max:
                raise Fault(f"sent a {name!r} of {number.bit_length()} bits, expected a number")
    claimed = metrics_of(reply).get(protocol.PARTITION_ID, partition_id)
    if partition_id is not None and claimed != partition_id:
        raise Fault(f"answered for partition {str(claimed)[:20]}")
    require_number(reply, key, MOST_EXAMPLES)
    for name, value in metrics_of(reply).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Diverged(f"sent {name!r}={value}, expected a number")
    return reply


def require_one(records: Mapping[str, object], name: str, others: Container[str | None] = ()) -> None:
    """Raise ``Fault`` for several records of a kind of which none has the ``name`` that we read."""
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


def fitting(
    record: ArrayRecord | None, what: str, layout: Layout, *, parameters_only: bool = False
) -> ArrayRecord:
    """Return a record that has the model's names and shapes; raise ``Fault`` for another."""
    if record is None:
        raise Fault(f"sent no {what}")
    if mismatch := layout.mismatch(record, parameters_only=parameters_only):
        raise Fault(mismatch)
    return record


def mean_lists(replies: Iterable[Message], weights: Tensor, tell: Tell) -> dict[str, list[float]]:
    """Average each metric that is a list in every reply by element, as Flower does, with weights [K].

    ``tell`` is given a line for one that cannot be averaged.
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
            tell(f"{name!r} is a list of {lengths[0]} to {lengths[-1]} numbers: not averaged")
        elif lengths[0]:
            means[name] = (shares @ torch.tensor(values, dtype=torch.float64)).tolist()
    return means


def with_own(nodes: Mapping[str, Any], own: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Return both; a metric of the nodes that has the name of one of our own is kept as ``node-NAME``."""
    kept = dict(nodes)
    for name in sorted(nodes.keys() & own.keys()):
        kept[f"node-{name}"] = kept.pop(name)
        tell(f"nodes send {name!r}, which the strategy reports itself: theirs is kept as 'node-{name}'")
    return kept | dict(own)


def is_of_other_app(reply: Message) -> bool:
    """Say whether a reply is of another ClientApp than this project's, which says for which partition."""
    return protocol.PARTITION_ID not in metrics_of(reply)


def name_unread(replies: Iterable[Message], extras: Iterable[str], tell: Tell) -> None:
    """Name the records of replies that nothing reads; ``extras`` are read beside the usual ones."""
    known = {*OF_REPLIES, *extras}
    for reply in replies:
        records = {**reply.content.array_records, **reply.content.metric_records}
        named = protocol.ARRAYS in records, protocol.METRICS in records
        for name, record in records.items():
            kind = type(record).__name__
            if name not in known and named[kind == "MetricRecord"]:
                tell(f"nodes send the {kind} {name!r} beside the one that is read: it is not used")
