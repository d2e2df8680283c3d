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
        reply = by_node.get(node_id)
        fault = _fault(reply, layout)
        if reply is not None and fault is None:
            row = len(sound)
            received, buffers[row] = layout.flatten(arrays_of(reply))
            torch.sub(parameters, received, out=deltas[row])
            if not (torch.isfinite(deltas[row]).all() and torch.isfinite(buffers[row]).all()):
                fault = "sent NaN or infinite values"
            else:
                sound[partition_id] = reply
        if fault is not None:
            faults[partition_id] = fault
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


def arrays_of(message: Message) -> ArrayRecord:
    """Return the model in a message: the record named ``arrays``, else the only ArrayRecord."""
    records = message.content.array_records
    if protocol.ARRAYS in records:
        return records[protocol.ARRAYS]
    (record,) = records.values()
    return record


def metrics_of(message: Message) -> MetricRecord:
    """Return the metrics in a message: the record named ``metrics``, else the only MetricRecord."""
    records = message.content.metric_records
    if protocol.METRICS in records:
        return records[protocol.METRICS]
    (record,) = records.values()
    return record


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


def metrics_fault(reply: Message | None) -> str | None:
    """Say what is wrong with a reply that carries metrics only; None when it is sound."""
    if reply is None:
        return "gave no answer in time"
    if reply.has_error():
        return (reply.error.reason or f"failed with error code {reply.error.code}").strip()
    if not reply.content.metric_records:
        return "sent no metrics"
    count = metrics_of(reply).get(protocol.NUM_EXAMPLES)
    if not isinstance(count, int | float):
        return f"sent no {protocol.NUM_EXAMPLES!r}"
    if not 0 <= count < float("inf"):
        return f"sent {protocol.NUM_EXAMPLES}={count}, expected a number of examples"
    return None


def _fault(reply: Message | None, layout: Layout) -> str | None:
    """Say what is wrong with a training reply, its values aside; None when it is sound."""
    fault = metrics_fault(reply)
    if fault is not None or reply is None:
        return fault
    if num_examples_of(reply) == 0:
        return "trained on no examples"
    if not reply.content.array_records:
        return "sent no arrays"
    return layout.mismatch(arrays_of(reply))
