"""Node metrics: what becomes of the metrics that nodes choose to send, besides the numbers in every reply.

Lists are averaged element by element, as Flower does. What cannot be averaged, or has the name of one of
the strategy's own metrics, is named in the log.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from flwr.app import Message
from torch import Tensor

from strategies.shared import protocol

from .replies import metrics_of

OF_REPLIES = (protocol.ARRAYS, protocol.METRICS, protocol.CODES, protocol.CONTROL)
Tell = Callable[[str], None]


def mean_lists(replies: Iterable[Message], weights: Tensor, tell: Tell) -> dict[str, list[float]]:
    """Average element by element each metric that is a list in every reply, with the replies' weights [K].

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


def name_unread(replies: Iterable[Message], extra: str | None, tell: Tell) -> None:
    """Name the records of replies that nothing reads."""
    known = {*OF_REPLIES, extra}
    for reply in replies:
        records = {**reply.content.array_records, **reply.content.metric_records}
        named = protocol.ARRAYS in records, protocol.METRICS in records
        for name, record in records.items():
            kind = type(record).__name__
            if name not in known and named[kind == "MetricRecord"]:
                tell(f"nodes send a {kind} {name!r} beside the one that is read: it is not used")
