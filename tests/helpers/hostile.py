"""Sound replies of a small model, and what a hostile node makes of its own."""

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from helpers.federation import Federation, Model, answer, record, round_of, sent_model
from strategies.shared import protocol

HOSTILE = 1  # the partition whose replies are tampered with
Tamper = Callable[[RecordDict], None]
Outcome = list[tuple[ArrayRecord, dict[str, Any]]]


def start() -> Model:
    draws = np.random.default_rng(0)
    return {
        "conv.weight": draws.normal(size=(4, 3, 2, 2)).astype(np.float32),
        "bn.running_mean": draws.normal(size=4).astype(np.float32),
        "bn.num_batches_tracked": np.array(7),
        "fc.weight": draws.normal(size=(4, 3)).astype(np.float32),
    }


def trained(partition_id: int, content: RecordDict) -> RecordDict:
    """Train, or test, as a sound node does: what it sends depends on the round and the partition alone."""
    draws = np.random.default_rng((round_of(content), partition_id))
    model = {name: _moved(values, draws) for name, values in sent_model(content).items()}
    metrics = {"loss": draws.random(), "accuracy": draws.random(), "gradient-variance": 1 + draws.random()}
    reply = answer(model, int(draws.integers(1, 50)), **metrics, **{"learning-rate": 0.1})
    if protocol.CONTROL in content:
        parameters = {name: values for name, values in model.items() if not name.startswith("bn.")}
        reply[protocol.CONTROL] = record(parameters)
    return reply


def _moved(values: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    if values.dtype.kind == "i":
        return values + 3
    return values + draws.normal(size=values.shape).astype(values.dtype)


def tampered(tamper: Tamper | None, kind: str = "train") -> Callable[[list[Message]], list[Message]]:
    """Return what happens to replies of a kind: the hostile node's is tampered with, or lost if None."""

    def happens(replies: list[Message]) -> list[Message]:
        kept = []
        for reply in replies:
            sent_by = reply.metadata.src_node_id
            if reply.metadata.message_type == kind and sent_by == node_id(HOSTILE):
                if tamper is None:
                    continue
                tamper(reply.content)
            kept.append(reply)
        return kept

    return happens


def node_id(partition_id: int) -> int:
    return 100 + partition_id


def played(
    strategy: Strategy,
    happens: Callable[[list[Message]], list[Message]],
    rounds: int = 2,
    nodes: Federation | int = 4,
) -> Outcome:
    """Play rounds of training and testing; return the model and all metrics after each of them."""
    grid = Federation(trained, nodes) if isinstance(nodes, int) else nodes
    arrays, history = record(start()), []
    for server_round in range(1, rounds + 1):
        messages = strategy.configure_train(server_round, arrays, ConfigRecord(), grid)
        new, metrics = strategy.aggregate_train(server_round, happens(grid.send_and_receive(messages)))
        arrays = arrays if new is None else new
        tests = strategy.configure_evaluate(server_round, arrays, ConfigRecord(), grid)
        tested = strategy.aggregate_evaluate(server_round, happens(grid.send_and_receive(tests)))
        both = dict(metrics or {}) | {f"test {name}": value for name, value in (tested or {}).items()}
        history.append((arrays, both))
    return history


def difference(first: Outcome, second: Outcome) -> str:
    """Say in which round two outcomes differ, to the bit; empty where they are equal."""
    for place, ((model, own_metrics), (other, other_metrics)) in enumerate(
        zip(first, second, strict=True), 1
    ):
        if list(model) != list(other):
            return f"round {place}: arrays {list(model)} and {list(other)}"
        for name in model:
            if (model[name].shape, model[name].data) != (other[name].shape, other[name].data):
                return f"round {place}: {name} differs"
        if own_metrics != other_metrics or list(own_metrics) != list(other_metrics):
            return f"round {place}: {own_metrics} and {other_metrics}"
    return ""


# ---- what a hostile node sends ---------------------------------------------------------------


def tells(**metrics: Any) -> Tamper:
    """Return a node's reply with other metrics, an underscore for a hyphen; None leaves one out."""

    def tamper(content: RecordDict) -> None:
        changed = dict(content.metric_records[protocol.METRICS])
        changed |= {name.replace("_", "-"): value for name, value in metrics.items()}
        content[protocol.METRICS] = MetricRecord({k: v for k, v in changed.items() if v is not None})

    return tamper


def unchecked(name: str, value: object) -> Tamper:
    """Return a reply with a metric that Flower's records refuse, as a client in this process could send."""

    def tamper(content: RecordDict) -> None:
        content.metric_records[protocol.METRICS].__dict__["_data"][name] = value

    return tamper


def sends(where: str = protocol.ARRAYS, **named: Array | np.ndarray | None) -> Tamper:
    """Return a reply with other arrays, two underscores for a dot; None leaves one out."""

    def tamper(content: RecordDict) -> None:
        arrays: dict[str, Any] = dict(content.array_records[where])
        for name, values in named.items():
            key = name.replace("__", ".")
            arrays[key] = Array(values) if isinstance(values, np.ndarray) else values
        content[where] = ArrayRecord({k: v for k, v in arrays.items() if v is not None})

    return tamper


def without(name: str) -> Tamper:
    """Return a reply without one of its records."""

    def tamper(content: RecordDict) -> None:
        content.pop(name, None)

    return tamper


def claiming(values: np.ndarray, **claims: Any) -> Array:
    """Return an array that claims to be something else than its bytes say."""
    honest = Array(values)
    fields = {"dtype": honest.dtype, "shape": honest.shape, "stype": honest.stype, "data": honest.data}
    return Array(**(fields | claims))
