"""Replies: check what the nodes sent, and stack what is sound.

A node that failed, was late, or sent NaN, other shapes or no ``num-examples`` is left out of the
round and named with its reason. Flower's own strategies let a NaN through; these do not.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord, Message, MetricRecord
from torch import Tensor

from strategies.parts.layout import Layout
from strategies.parts.updates import Updates
from strategies.shared import protocol

from .buffers import Buffers


class Fault(Exception):
    """Why a node's reply is left out."""


@dataclass(frozen=True)
class Collected:
    """One round's replies, sorted by partition id.

    Parameters
    ----------
    updates : the sound ones, stacked
    extra : [K, P], what else each of them carries (SCAFFOLD's variates); None when nothing was asked for
    faults : {partition id: reason} for every node that was asked and is left out
    """

    updates: Updates
    extra: Tensor | None
    faults: dict[int, str]


def collect(
    replies: Iterable[Message],
    asked: dict[int, int],
    layout: Layout,
    start: Tensor,
    scratch: Buffers,
    extra: str | None = None,
    needed: str | None = None,
) -> Collected:
    """Check the replies of the nodes ``asked`` ({partition id: node id}) and stack the sound ones.

    Parameters
    ----------
    start : [P], the parameters that the nodes started from: Delta_k = start - w_k
    scratch : what is stacked lies in it, until the next round is collected
    extra : the name of a further ArrayRecord, shaped as the parameters, that each reply must carry
    needed : the name of a metric that each reply must carry, a number, 0 or above
    """
    by_node = {reply.metadata.src_node_id: reply for reply in replies}
    shape = (len(asked), layout.num_parameters)
    deltas = scratch.rows("deltas", *shape, layout.dtype)
    buffers = torch.empty(len(asked), layout.num_buffers, dtype=torch.float64)
    extras = scratch.rows("extras", *shape, layout.dtype) if extra else None
    sound: dict[int, Message] = {}
    faults: dict[int, str] = {}
    for partition_id, node_id in sorted(asked.items()):
        row = len(sound)
        try:
            reply = checked(by_node.get(node_id))
            if num_examples_of(reply) == 0:
                raise Fault("trained on no examples")
            if needed:
                _number(reply, needed)
            record = _fitting(arrays_of(reply), "arrays", layout)
            trained = layout.flatten_parameters(record, out=deltas[row])
            torch.sub(start, trained, out=trained)
            buffers[row] = layout.flatten_buffers(record)
            parts = [deltas[row], buffers[row]]
            if extra and extras is not None:
                found = reply.content.array_records.get(extra)
                fitting = _fitting(found, f"{extra!r} record", layout, parameters_only=True)
                layout.flatten_parameters(fitting, out=extras[row])
                parts.append(extras[row])
            if not all(map(_finite, parts)):
                raise Fault("sent NaN or infinite values")
        except Fault as fault:
            faults[partition_id] = str(fault)
        except (ValueError, TypeError, IndexError) as error:  # bytes that are not such an array
            faults[partition_id] = f"sent unreadable arrays ({error})"
        else:
            sound[partition_id] = reply
    kept = len(sound)
    metrics = scalar_metrics(sound.values())
    updates = Updates(
        deltas[:kept],
        buffers[:kept],
        metrics.pop(protocol.NUM_EXAMPLES, torch.zeros(0, dtype=torch.float64)),
        tuple(sound),
        layout,
        start,
        metrics,
    )
    return Collected(updates, None if extras is None else extras[:kept], faults)


def _finite(values: Tensor) -> bool:
    """Say whether all values are finite; where their sum is, a closer look is not needed."""
    return math.isfinite(values.sum()) or bool(values.isfinite().all())


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


def scalar_metrics(messages: Iterable[Message]) -> dict[str, Tensor]:
    """Return {name: [K] in float64}: every scalar metric that all of the messages carry."""
    records = [metrics_of(message) for message in messages]
    names = set.intersection(*map(set, records)) if records else set()
    return {
        name: torch.tensor([record[name] for record in records], dtype=torch.float64)
        for name in sorted(names - {protocol.PARTITION_ID})
        if all(isinstance(record[name], int | float) for record in records)
    }


def mean_metrics(metrics: dict[str, Tensor], num_examples: Tensor) -> dict[str, float]:
    """Average each metric [K] over the nodes, weighted by their numbers of examples [K]."""
    weights = num_examples / num_examples.sum()
    return {name: float(weights @ values) for name, values in metrics.items()}


def checked(reply: Message | None) -> Message:
    """Return the reply of a node when it is one and tells on how many examples it worked.

    Raises
    ------
    Fault : otherwise
    """
    if reply is None:
        raise Fault("gave no answer in time")
    if reply.has_error():
        reason = " ".join((reply.error.reason or "").split())  # one line, whatever the client raised
        raise Fault(reason or f"failed with code {reply.error.code}")
    _number(reply, protocol.NUM_EXAMPLES)
    return reply


def _number(reply: Message, name: str) -> None:
    """Raise ``Fault`` for a reply without a metric of this name, finite and 0 or above."""
    value = metrics_of(reply).get(name)
    if not isinstance(value, int | float):
        raise Fault(f"sent no {name!r}")
    if not 0 <= value < float("inf"):
        raise Fault(f"sent {name}={value}, expected a number, 0 or above")


def _fitting(
    record: ArrayRecord | None, what: str, layout: Layout, *, parameters_only: bool = False
) -> ArrayRecord:
    """Return a record that has the model's names and shapes; raise ``Fault`` for another."""
    if record is None:
        raise Fault(f"sent no {what}")
    if mismatch := layout.mismatch(record, parameters_only=parameters_only):
        raise Fault(mismatch)
    return record
