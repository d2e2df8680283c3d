"""Optional measurements: bytes of messages, spread over nodes, single classes."""

import csv
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pvariance

from flwr.app import Message, MetricRecord
from torch import Tensor

from clients.evaluation import NO_CLASS
from strategies.shared import protocol
from strategies.shared.checks import void_measures

from .environment import naming
from .metrics import GLOBAL, less_is_better

Sent = dict[str, float]
TENTH = 0.1
MOST_NAMED = 10  # nodes in a line
PER_CLASS, CONFUSION = "per_class.csv", "confusion.csv"
NUM_EXAMPLES, PARTITION_ID = "num_examples", "partition_id"  # as metrics.csv has them


def count_bytes(messages: Iterable[Message]) -> list[int]:
    """Return how many bytes of arrays and metrics each message carries, as sent; a failure has none."""
    return [
        sum(
            record.count_bytes()
            for records in (message.content.array_records, message.content.metric_records)
            for record in records.values()
        )
        if message.has_content()
        else 0
        for message in messages
    ]


def count_compressed_bytes(messages: Iterable[Message]) -> list[int]:
    """Return how many bytes each message's arrays take where the transport compresses them (zlib, level 1).

    An array that several messages share is compressed once, and counts in each.
    """
    sizes: dict[int, int] = {}
    found = []
    for message in messages:
        total = 0
        if message.has_content():
            for array in (a for record in message.content.array_records.values() for a in record.values()):
                if id(array) not in sizes:
                    sizes[id(array)] = len(zlib.compress(array.data, 1))
                total += sizes[id(array)]
        found.append(total)
    return found


def sent(messages: Sequence[Message], replies: Sequence[Message], compressed: bool) -> dict[str, Sent]:
    """Return the bytes of a round, down and up: ``global`` those of all nodes, ``node 3`` those of one.

    A node that does not answer, or whose ClientApp does not say which partition it holds, counts in
    ``global`` alone.
    """
    count = count_compressed_bytes if compressed else count_bytes
    down, up = count(messages), count(replies)
    found = {GLOBAL: {"bytes_down": float(sum(down)), "bytes_up": float(sum(up))}}
    to_node: dict[int, int] = {}
    for message, size in zip(messages, down, strict=True):
        to_node[message.metadata.dst_node_id] = to_node.get(message.metadata.dst_node_id, 0) + size
    for reply, size in zip(replies, up, strict=True):
        if (partition := _partition_of(reply)) is not None:
            own = found.setdefault(f"node {partition}", {"bytes_down": 0.0, "bytes_up": 0.0})
            own["bytes_down"] += to_node.pop(reply.metadata.src_node_id, 0)  # once, of several messages
            own["bytes_up"] += size
    return found


def _partition_of(reply: Message) -> int | None:
    if not reply.has_content() or protocol.METRICS not in reply.content:
        return None
    told = reply.content.metric_records[protocol.METRICS].get(protocol.PARTITION_ID)
    return told if isinstance(told, int) else None


def place_of(node: str) -> tuple[int, str]:
    """Return what nodes are sorted by: the partition in ``node 3``, else a site's name."""
    number = node.removeprefix("node ")
    return (int(number), "") if number.isdecimal() else (-1, node)


def per_node_metrics(replies: Iterable[Message]) -> dict[str, dict[str, float]]:
    """Return what each node has measured while it trained, ``node 3`` by its partition.

    Of a node that trains several groups' models it is the mean of what it tells of each. A node that does
    not answer, or whose ClientApp does not say which partition it holds, has no part.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for reply in replies:
        if (partition := _partition_of(reply)) is not None:
            own = found.setdefault(f"node {partition}", {})
            for name, value in _numbers_of(reply).items():
                own.setdefault(name, []).append(value)
    return {node: {name: fmean(values) for name, values in own.items()} for node, own in found.items()}


def _numbers_of(reply: Message) -> dict[str, float]:
    """Return the numbers that a reply tells, but which partition it is of."""
    if not reply.has_content() or protocol.METRICS not in reply.content:
        return {}
    told = scalars(reply.content.metric_records[protocol.METRICS])
    told.pop(PARTITION_ID, None)
    return told


def find_rare_nodes(contributions: Mapping[str, Mapping[str, int]]) -> str:
    """Return which nodes were left out of more rounds than they took part in, as ``partition 3 (1 of 9)``.

    ``contributions`` are a strategy's: a node that was never asked, or has dropped out, is no failure. The
    rarest come first; of many, the others are counted.
    """
    counts = {
        name: (one["updates"], one["updates"] + one["left_out"]) for name, one in contributions.items()
    }
    rare = {name: pair for name, pair in counts.items() if 2 * pair[0] < pair[1]}
    ordered = sorted(rare.items(), key=lambda one: one[1][0] / one[1][1])
    named = [f"{name} ({took} of {asked})" for name, (took, asked) in ordered]
    more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    return ", ".join(named[:MOST_NAMED] + more)


def scalars(record: MetricRecord | None) -> dict[str, float]:
    """Return a record's numbers under the names that metrics.csv uses."""
    return {
        key.replace("-", "_"): float(value)
        for key, value in (record or {}).items()
        if isinstance(value, int | float)
    }


def node_spread(replies: Iterable[Message]) -> dict[str, float]:
    """Return each metric's worst value, the mean of the worst tenth, and the variance, over the nodes.

    Each node counts the same; a tenth is rounded up to whole nodes. Nodes without test data have no part.
    """
    by_metric: dict[str, list[float]] = {}
    for reply in replies:
        for name, value in void_measures(_numbers_of(reply)).items():
            if name != NUM_EXAMPLES:
                by_metric.setdefault(name, []).append(value)
    found = {}
    for name, values in by_metric.items():
        worst_first = sorted(values, reverse=less_is_better(name))
        if any(map(math.isnan, values)):
            worst_first = [math.nan]  # has no place among numbers, and would hide
        tenth = worst_first[: math.ceil(TENTH * len(values))]
        found[f"{name}_worst"] = worst_first[0]
        found[f"{name}_worst_tenth"] = fmean(tenth)
        found[f"{name}_variance"] = pvariance(values)
    return found


def write_classes(folder: Path, names: Sequence[str], found: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Write per_class.csv and confusion.csv of models, from (labels, predictions) of each on the test set.

    A class' accuracy is the share of its examples that are found (recall), its precision the share that is
    right among what is taken for it; empty where there is none. Both are NaN of a model that has no output
    for some example, which it takes for no class: ``nan`` in confusion.csv.
    """
    from sklearn.metrics import confusion_matrix  # takes a second, which a client need not spend

    classes: list[tuple[object, ...]] = []
    cells: list[tuple[object, ...]] = []
    for name, (labels, predicted) in zip(names, found, strict=True):
        counts = confusion_matrix(labels, predicted)
        known = sorted({*labels.tolist(), *predicted.tolist()})
        called = ["nan" if label == NO_CLASS else label for label in known]
        for place, label in enumerate(known):
            if label == NO_CLASS:
                continue
            right, there, taken = counts[place, place], counts[place].sum(), counts[:, place].sum()
            shares = (right / there if there else "", right / taken if taken else "")
            classes.append((name, label, there, *((math.nan, math.nan) if NO_CLASS in known else shares)))
            cells += [(name, label, other, int(n)) for other, n in zip(called, counts[place], strict=True)]
    _write(folder / PER_CLASS, ("model", "class", "examples", "accuracy", "precision"), classes)
    _write(folder / CONFUSION, ("model", "class", "predicted", "examples"), cells)


def discard_classes(folder: Path) -> None:
    """Remove what :func:`write_classes` has written of another run."""
    for name in (PER_CLASS, CONFUSION):
        (folder / name).unlink(missing_ok=True)


def _write(target: Path, heading: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    with naming(target), open(target, "w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
