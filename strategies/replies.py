"""Replies: check what the nodes sent, and stack what is sound.

A node that failed, was late, or sent NaN, other shapes or no ``num-examples`` is left out of the
round and named with its reason. Flower's own strategies let a NaN through; these do not.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord, Message, MetricRecord
from torch import Tensor

from . import protocol
from .layout import Layout
from .updates import Updates


class Fault(Exception):
    """Why a node's reply is left out."""


@dataclass(frozen=True)
class Collected:
    """One round's replies, sorted by partition id.

    Parameters
    ----------
    updates : the sound ones, stacked
    messages : the same replies as messages, in the same order
    faults : {partition id: reason} for every node that was asked and is left out
    """

    updates: Updates
    messages: tuple[Message, ...]
    faults: dict[int, str]


def collect(
    replies: Iterable[Message], asked: dict[int, int], layout: Layout, parameters: Tensor
) -> Collected:
    """Check the replies of the nodes ``asked`` ({partition id: node id}) and stack the sound ones.

    ``parameters`` [P] are those the nodes started from: Delta_k = parameters - w_k.
    """
    by_node = {reply.metadata.src_node_id: reply for reply in replies}
    deltas = torch.empty(len(asked), layout.num_parameters, dtype=layout.dtype)
    buffers = torch.empty(len(asked), layout.num_buffers, dtype=torch.float64)
    sound: dict[int, Message] = {}
    faults: dict[int, str] = {}
    for partition_id, node_id in sorted(asked.items()):
        try:
            reply = checked(by_node.get(node_id))
            received, buffers[len(sound)] = layout.flatten(_checked_arrays(reply, layout))
            delta = torch.sub(parameters, received, out=deltas[len(sound)])
            if not (delta.isfinite().all() and buffers[len(sound)].isfinite().all()):
                raise Fault("sent NaN or infinite values")
            sound[partition_id] = reply
        except Fault as fault:
            faults[partition_id] = str(fault)
    kept = len(sound)
    counts = [num_examples_of(reply) for reply in sound.values()]
    updates = Updates(
        deltas[:kept],
        buffers[:kept],
        torch.tensor(counts, dtype=torch.float64),
        tuple(sound),
        layout,
    )
    return Collected(updates, tuple(sound.values()), faults)


def arrays_of(message: Message) -> ArrayRecord | None:
    """Return the model in a message: the record named ``arrays``, else the first ArrayRecord."""
    record = message.content.get(protocol.ARRAYS)
    if isinstance(record, ArrayRecord):
        return record
    return next(iter(message.content.array_records.values()), None)


def metrics_of(message: Message) -> MetricRecord:
    """Return the metrics in a message: the record named ``metrics``, else the first, else none."""
    record = message.content.get(protocol.METRICS)
    if isinstance(record, MetricRecord):
        return record
    return next(iter(message.content.metric_records.values()), MetricRecord())


def num_examples_of(message: Message) -> float:
    """Return on how many examples the node worked."""
    value = metrics_of(message)[protocol.NUM_EXAMPLES]
    return float(value)  # type: ignore[arg-type]


def mean_metrics(messages: Iterable[Message]) -> dict[str, float]:
    """Average every scalar metric that all messages carry, weighted by ``num-examples``; at least one."""
    messages = list(messages)
    weights = [num_examples_of(message) for message in messages]
    scalars = [
        {k: float(v) for k, v in metrics_of(message).items() if isinstance(v, int | float)}
        for message in messages
    ]
    shared = set.intersection(*map(set, scalars)) - {protocol.NUM_EXAMPLES, protocol.PARTITION_ID}
    return {
        key: sum(w * values[key] for w, values in zip(weights, scalars, strict=True)) / sum(weights)
        for key in sorted(shared)
    }


def checked(reply: Message | None) -> Message:
    """Return the reply of a node when it is one and tells on how many examples it worked.

    Raises
    ------
    Fault : otherwise
    """
    if reply is None:
        raise Fault("gave no answer in time")
    if reply.has_error():
        raise Fault((reply.error.reason or f"failed with code {reply.error.code}").strip())
    count = metrics_of(reply).get(protocol.NUM_EXAMPLES)
    if not isinstance(count, int | float):
        raise Fault(f"sent no {protocol.NUM_EXAMPLES!r}")
    if not 0 <= count < float("inf"):
        raise Fault(f"sent {protocol.NUM_EXAMPLES}={count}, expected a number of examples")
    return reply


def _checked_arrays(reply: Message, layout: Layout) -> ArrayRecord:
    """Return the model in a training reply, its values unchecked; raise ``Fault`` if it is none."""
    if num_examples_of(reply) == 0:
        raise Fault("trained on no examples")
    record = arrays_of(reply)
    if record is None:
        raise Fault("sent no arrays")
    if mismatch := layout.mismatch(record):
        raise Fault(mismatch)
    return record
