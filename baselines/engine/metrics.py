"""The column names of metrics.csv, and statistics over sites."""

import csv
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from statistics import fmean, median, pvariance
from types import MappingProxyType
from typing import Any

from flwr.app import Message, MetricRecord
from torch import Tensor

from baselines.errors import RunDiverged, UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.validation import EarlyStopping
from clients.evaluation import NO_CLASS
from strategies.shared import protocol
from strategies.shared.arrays import count_message_bytes
from strategies.shared.checks import has_diverged, void_measures

from .environment import name_file_in_errors, read_environment

COLUMNS = ("round", "split", "model", "metric", "value")
OWN_GROUP = "own group"  # the "model" of a mean over the nodes, each with its group's model
# a metric whose name has one of these words is better when lower; HIGHER_IS_BETTER lists exceptions
LOWER_IS_BETTER = (
    "loss",
    "error",
    "mae",
    "mse",
    "nll",
    "entropy",
    "perplexity",
    "variance",
    "bytes",
    "seconds",
)
HIGHER_IS_BETTER = ("explained_variance",)
EVALUATIONS = ("test", "validation", "node-test")  # the splits on which models are evaluated
NODE_PATTERN = r"^node ?(\d+)$"  # the "model" of a row about one node, with its partition id
GLOBAL_MODEL = "global"  # the "model" of a row about all nodes together
SITE_TEST = "site-test"  # the "split" of what each node measures on its own test data
SITE_TRAIN = "site-train"  # the "split" of each node's training metrics


def summarise_sites(per_site_metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the lowest, the highest and the median of each metric over the sites that sent it.

    NaN if any of them is not finite, since it cannot be ranked and must not go unnoticed.
    """
    spreads: dict[str, float] = {}
    for name in dict.fromkeys(name for metrics in per_site_metrics.values() for name in metrics):
        values = [metrics[name] for metrics in per_site_metrics.values() if name in metrics]
        if not all(map(isfinite, values)):
            values = [nan]
        parts = {"lowest": min(values), "median": median(values), "highest": max(values)}
        spreads |= {f"{name}_{part}": float(value) for part, value in parts.items()}
    return spreads


def is_lower_better(metric: str) -> bool:
    """Say, by its name, whether a lower value of a metric is better."""
    return any(word in metric for word in LOWER_IS_BETTER) and not any(
        word in metric for word in HIGHER_IS_BETTER
    )


# The objective: the metric that a sweeper optimises.


def read_objective(folder: Path, name: str, server_round: int | None = None) -> float | None:
    """Return ``split/metric`` of a round (None: the last), a mean over the nodes; None without any.

    Raises
    ------
    UserError : when metrics.csv is damaged
    """
    values = by_round(folder, name)
    return values.get(max(values) if server_round is None else server_round) if values else None


def by_round(folder: Path, name: str) -> dict[int, float]:
    """Return ``split/metric`` of each round that has it, averaged over the nodes.

    Raises
    ------
    UserError : when metrics.csv is damaged
    """
    split, _, metric = name.partition("/")
    rows: dict[int, dict[str, float]] = {}
    try:
        with open(folder / "metrics.csv", newline="") as file:
            for row in csv.DictReader(file):
                if (row["split"], row["metric"]) == (split, metric):
                    rows.setdefault(int(row["round"]), {})[row["model"]] = float(row["value"])
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise UserError(f"{folder}/metrics.csv is damaged: start again with resume=false") from error
    return {number: models.get(OWN_GROUP, fmean(models.values())) for number, models in rows.items()}


# When a run is over: it has diverged, or has not improved for ``patience`` rounds.


Row = tuple[int, str, str, str, float]  # as COLUMNS
HAS_DIVERGED = "the run has diverged:"  # begins the line, also in the log of a deployment
RATE_SETTINGS = ("client.optimizer.lr", "step_size.eta")
NEUTRAL_RATE = "1.0"  # a rate that changes nothing, so no remedy


@dataclass(frozen=True)
class Divergence:
    """The first round from which a run's evaluations are not finite, and their split."""

    server_round: int
    split: str


def check_divergence(experiment: Experiment, folder: Path) -> None:
    """Raise ``RunDiverged`` where the run's last evaluation is not finite, in one line with a remedy.

    Raises
    ------
    RunDiverged : where the run has diverged
    UserError : when metrics.csv is damaged
    """
    if (divergence := divergence_of(_rows(folder))) is None:
        return
    settings = experiment.flat_configuration()
    rates = [
        f"{name}={settings[name]}"
        for name in RATE_SETTINGS
        if settings.get(name, NEUTRAL_RATE) != NEUTRAL_RATE
    ]
    remedy = f"lower {' or '.join(rates) or 'it'}"
    raise RunDiverged(
        f"{HAS_DIVERGED} its {divergence.split} evaluation is not finite from round "
        f"{divergence.server_round} on; the likely cause is a learning rate: {remedy}"
    )


def divergence_of(rows: Iterable[Row]) -> Divergence | None:
    """Return since when the evaluations in rows of metrics.csv are not finite; None if the last is."""
    divergences = []
    for split, rounds in diverged_rounds(rows).items():
        since = None
        for server_round, diverged in sorted(rounds.items()):
            since = (server_round if since is None else since) if diverged else None
        if since is not None:
            divergences.append(Divergence(since, split))
    return min(divergences, key=lambda one: one.server_round, default=None)


def diverged_rounds(rows: Iterable[Row]) -> dict[str, dict[int, bool]]:
    """Return by split and round whether the evaluation is not finite; of several models, their mean."""
    measured: dict[str, dict[int, dict[str, dict[str, float]]]] = {}
    for server_round, split, model, metric, value in rows:
        if split in EVALUATIONS:
            models = measured.setdefault(split, {}).setdefault(server_round, {})
            models.setdefault(model, {})[metric] = value
    return {
        split: {server_round: _any_diverged(models) for server_round, models in rounds.items()}
        for split, rounds in measured.items()
    }


def diverged_rounds_in(folder: Path, split: str) -> set[int]:
    """Return the rounds of a run whose evaluation is not finite.

    Raises
    ------
    UserError : when metrics.csv is damaged
    """
    rounds = diverged_rounds(_rows(folder)).get(split, {})
    return {server_round for server_round, diverged in rounds.items() if diverged}


def _any_diverged(models: dict[str, dict[str, float]]) -> bool:
    mean = models.get(OWN_GROUP)
    return any(map(has_diverged, models.values() if mean is None else [mean]))


def _rows(folder: Path) -> Iterable[Row]:
    """Yield the rows of a run's evaluations; none where nothing has been written."""
    try:
        with open(folder / "metrics.csv", newline="") as file:
            for row in csv.DictReader(file):
                server_round, split, model, metric, value = (row[name] for name in COLUMNS)
                if split in EVALUATIONS:
                    yield int(server_round), split, model, metric, float(value)
    except FileNotFoundError:
        return
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise UserError(f"{folder}/metrics.csv is damaged: start again with resume=false") from error


def best_round(folder: Path, name: str) -> int | None:
    """Return the first round with the best ``split/metric``, a mean over the nodes; None without any.

    A round whose evaluation is not finite is never the best.
    """
    diverged = diverged_rounds_in(folder, name.partition("/")[0])
    measured = by_round(folder, name).items()
    values = {number: value for number, value in measured if isfinite(value) and number not in diverged}
    if not values:
        return None
    sign = 1 if is_lower_better(name) else -1
    return min(values, key=lambda number: (sign * values[number], number))


def describe_end(folder: Path) -> str:
    """Describe a run that has ended in one line: last and best evaluation, and duration.

    The metric is the accuracy on the test set, else on the nodes' own tests, else the loss in this order.
    """
    names = (f"{split}/{metric}" for metric in ("accuracy", "loss") for split in ("test", "node-test"))
    name = next((name for name in names if by_round(folder, name)), None)
    if name is None:
        return ""
    measured, best = by_round(folder, name), best_round(folder, name)
    scale, form = (100, "{:.1f} %") if name.endswith("accuracy") else (1, "{:.4g}")
    last = form.format(scale * measured[max(measured)])
    top = "" if best is None else f", best {form.format(scale * measured[best])} in round {best}"
    seconds = read_environment(folder).get("wall_seconds")
    taken = (
        ""
        if seconds is None
        else f"; {max(measured)} round{'s' * (max(measured) != 1)} in {describe_seconds(seconds)}"
    )
    return f"{name.replace('/', ' ')}: last {last}{top}{taken}"


def describe_seconds(seconds: float) -> str:
    """Return a time in words: 12 s, 3 min 5 s, 2 h 40 min."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def should_stop(folder: Path, stopping: EarlyStopping, server_round: int) -> bool:
    """Say whether ``patience`` rounds have passed without a better one; round 0 is the initial model.

    Raises
    ------
    UserError : when the metric has never been measured by then
    """
    if stopping.patience is None:
        return False
    waited = server_round - (best_round(folder, stopping.metric) or 0)
    if waited >= stopping.patience and not by_round(folder, stopping.metric):
        raise UserError(
            f"early_stopping.metric={stopping.metric} was never measured: see {folder}/metrics.csv"
        )
    return waited >= stopping.patience


def describe_stop(folder: Path, stopping: EarlyStopping) -> dict[str, Any]:
    """Return what environment.json records of early stopping."""
    if stopping.patience is None:
        return {}
    return {"best_round": best_round(folder, stopping.metric)}


# Measured on request: bytes of messages, differences between nodes, metrics per class.


RoundBytes = dict[str, float]
TENTH = 0.1
MAX_NODES_NAMED = 10  # nodes named in a line
PER_CLASS, CONFUSION = "per_class.csv", "confusion.csv"
NUM_EXAMPLES, PARTITION_ID = "num_examples", "partition_id"  # as metrics.csv has them


def count_bytes(messages: Iterable[Message]) -> list[int]:
    """Return the bytes of arrays and metrics in each message, as sent; 0 for a failure."""
    return list(map(count_message_bytes, messages))


def count_compressed_bytes(messages: Iterable[Message]) -> list[int]:
    """Return the bytes of each message's arrays after compression (zlib, level 1).

    An array shared by several messages is compressed once and counted in each.
    """
    sizes: dict[int, int] = {}
    totals = []
    for message in messages:
        total = 0
        if message.has_content():
            for array in (a for record in message.content.array_records.values() for a in record.values()):
                if id(array) not in sizes:
                    sizes[id(array)] = len(zlib.compress(array.data, 1))
                total += sizes[id(array)]
        totals.append(total)
    return totals


def count_round_bytes(
    messages: Sequence[Message],
    replies: Sequence[Message],
    compressed: bool,
    partitions: Mapping[int, int] = MappingProxyType({}),
) -> dict[str, RoundBytes]:
    """Return a round's bytes, down and up, of all nodes (``global``) and of each (``node 3``).

    The nodes' add up to the global ones, also where a node is late or fails: ``partitions`` says which
    partition a node id holds. A node whose partition nobody has said counts in ``global`` alone.
    """
    count = count_compressed_bytes if compressed else count_bytes
    down, up = count(messages), count(replies)
    counts = {GLOBAL_MODEL: {"bytes_down": float(sum(down)), "bytes_up": float(sum(up))}}
    claimed = {reply.metadata.src_node_id: partition_of(reply) for reply in replies}
    held = {**partitions, **{node: k for node, k in claimed.items() if k is not None}}
    sizes = [("bytes_down", m.metadata.dst_node_id, n) for m, n in zip(messages, down, strict=True)]
    sizes += [("bytes_up", m.metadata.src_node_id, n) for m, n in zip(replies, up, strict=True)]
    for name, node, size in sizes:
        if node in held:
            own = counts.setdefault(f"node {held[node]}", {"bytes_down": 0.0, "bytes_up": 0.0})
            own[name] += size
    return counts


def partition_of(reply: Message) -> int | None:
    """Return the partition that a reply comes from; None for a failure or if the ClientApp does not say."""
    if not reply.has_content() or protocol.METRICS not in reply.content:
        return None
    partition_id = reply.content.metric_records[protocol.METRICS].get(protocol.PARTITION_ID)
    return partition_id if isinstance(partition_id, int) else None


def place_of(node: str) -> tuple[int, str]:
    """Return a sort key of nodes: the partition in ``node 3``, else a site's name."""
    number = node.removeprefix("node ")
    return (int(number), "") if number.isdecimal() else (-1, node)


def per_node_metrics(replies: Iterable[Message]) -> dict[str, dict[str, float]]:
    """Return what each node has measured while it trained, ``node 3`` by its partition.

    For a node that trains several groups' models it is the mean over them. A node that does not answer,
    or whose ClientApp does not say which partition it holds, is left out.
    """
    by_node: dict[str, dict[str, list[float]]] = {}
    for reply in replies:
        if (partition := partition_of(reply)) is not None:
            own = by_node.setdefault(f"node {partition}", {})
            for name, value in _numbers_of(reply).items():
                own.setdefault(name, []).append(value)
    return {node: {name: fmean(values) for name, values in own.items()} for node, own in by_node.items()}


def _numbers_of(reply: Message) -> dict[str, float]:
    """Return a reply's metrics, without its partition id."""
    if not reply.has_content() or protocol.METRICS not in reply.content:
        return {}
    numbers = scalars(reply.content.metric_records[protocol.METRICS])
    numbers.pop(PARTITION_ID, None)
    return numbers


def find_rare_nodes(contributions: Mapping[str, Mapping[str, int]]) -> str:
    """Name the nodes that were left out of more rounds than they took part in: ``partition 3 (1 of 9)``.

    ``contributions`` are a strategy's participation counts, in which rounds that did not ask a node do not
    count. The rarest come first; beyond ``MAX_NODES_NAMED`` the others are only counted.
    """
    counts = {
        name: (one["updates"], one["updates"] + one["left_out"]) for name, one in contributions.items()
    }
    rare = {name: pair for name, pair in counts.items() if 2 * pair[0] < pair[1]}
    ordered = sorted(rare.items(), key=lambda one: one[1][0] / one[1][1])
    named = [f"{name} ({took} of {num_sent})" for name, (took, num_sent) in ordered]
    more = [f"{len(named) - MAX_NODES_NAMED} more"] if len(named) > MAX_NODES_NAMED else []
    return ", ".join(named[:MAX_NODES_NAMED] + more)


def scalars(record: MetricRecord | None) -> dict[str, float]:
    """Return a record's numbers under the names that metrics.csv uses."""
    return {
        key.replace("-", "_"): float(value)
        for key, value in (record or {}).items()
        if isinstance(value, int | float)
    }


def node_spread(replies: Iterable[Message]) -> dict[str, float]:
    """Return each metric's worst value, the mean of the worst tenth, and the variance, over the nodes.

    Each node counts the same; a tenth is rounded up to whole nodes. Nodes without test data are left out.
    """
    by_metric: dict[str, list[float]] = {}
    for reply in replies:
        for name, value in void_measures(_numbers_of(reply)).items():
            if name != NUM_EXAMPLES:
                by_metric.setdefault(name, []).append(value)
    spreads = {}
    for name, values in by_metric.items():
        worst_first = sorted(values, reverse=is_lower_better(name))
        if any(map(math.isnan, values)):
            worst_first = [math.nan]  # cannot be ranked, and must not go unnoticed
        tenth = worst_first[: math.ceil(TENTH * len(values))]
        spreads[f"{name}_worst"] = worst_first[0]
        spreads[f"{name}_worst_tenth"] = fmean(tenth)
        spreads[f"{name}_variance"] = pvariance(values)
    return spreads


def write_classes(folder: Path, names: Sequence[str], predictions: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Write per_class.csv and confusion.csv of models, from (labels, predictions) of each on the test set.

    A class' accuracy is its recall; accuracy and precision are empty where there is nothing to divide by.
    Both are NaN for a model without a finite output for some example, predicted as ``nan`` in
    confusion.csv.
    """
    from sklearn.metrics import confusion_matrix  # takes a second, which a client need not spend

    classes: list[tuple[object, ...]] = []
    cells: list[tuple[object, ...]] = []
    for name, (labels, predicted) in zip(names, predictions, strict=True):
        counts = confusion_matrix(labels, predicted)
        known = sorted({*labels.tolist(), *predicted.tolist()})
        called = ["nan" if label == NO_CLASS else label for label in known]
        for place, label in enumerate(known):
            if label == NO_CLASS:
                continue
            right, present, taken = counts[place, place], counts[place].sum(), counts[:, place].sum()
            shares = (right / present if present else "", right / taken if taken else "")
            classes.append((name, label, present, *((math.nan, math.nan) if NO_CLASS in known else shares)))
            cells += [(name, label, other, int(n)) for other, n in zip(called, counts[place], strict=True)]
    _write(folder / PER_CLASS, ("model", "class", "examples", "accuracy", "precision"), classes)
    _write(folder / CONFUSION, ("model", "class", "predicted", "examples"), cells)


def _write(target: Path, heading: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    with name_file_in_errors(target), open(target, "w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
