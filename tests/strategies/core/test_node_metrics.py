"""What nodes send beside their model: lists, names that are ours, and several records of a kind."""

import logging

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower

from helpers.federation import Federation, Node, answer, model_in, play, record, sent_model
from strategies import CentralPrivacy, FedAvg, FedExP, Grouped, Uniform
from strategies.core.pseudo_gradient import PseudoGradientStrategy

START = {"w": np.zeros(2)}


def sending(metrics: list[dict[str, object]], **more: object) -> Node:
    """Return nodes that send these metrics, one of the list each, and more records."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        content = answer({"w": sent_model(content)["w"] + 1 + partition_id}, 1 + partition_id)
        content["metrics"].update(metrics[partition_id])
        content.update(more)  # type: ignore[arg-type]
        return content

    return node


def metrics_of(node: Node, strategy: PseudoGradientStrategy | None = None, rounds: int = 1) -> MetricRecord:
    history = play(strategy or FedAvg(), Federation(node, 2), record(START), range(1, rounds + 1))
    return history[-1][1]


LISTS: list[dict[str, object]] = [
    {"per-class": [0.0, 3.0], "count": [1, 2]},
    {"per-class": [1.5, 0.0], "count": [4, 8]},
]


def test_lists_are_averaged_element_by_element_as_flower_does() -> None:
    stock = flower.FedAvg(min_available_nodes=2)
    grid = Federation(sending(LISTS), 2)
    theirs = stock.start(grid, record(START), num_rounds=1)
    ours = FedAvg().start(grid, record(START), num_rounds=1)
    for actual, expected in (
        (ours.train_metrics_clientapp[1], theirs.train_metrics_clientapp[1]),
        (ours.evaluate_metrics_clientapp[1], theirs.evaluate_metrics_clientapp[1]),
    ):
        assert actual["per-class"] == pytest.approx([1.0, 1.0])
        assert actual["count"] == pytest.approx([3.0, 6.0])
        for name in ("per-class", "count"):
            assert actual[name] == pytest.approx(expected[name])


def test_so_they_are_over_groups() -> None:
    strategy = Grouped(inner=FedAvg(), groups={"a": (0,), "b": (1,)})
    grid = Federation(sending(LISTS), 2)
    ((_, metrics),) = play(strategy, grid, record(START))
    assert metrics["per-class"] == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("other", "lengths"), [([1.0], "1 to 2"), (3.0, "0 to 2"), ([1.0, 2.0, 3.0], "2 to 3")]
)
def test_lists_of_other_lengths_are_named_once(
    other: object, lengths: str, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = metrics_of(sending([{"mine": [1.0, 2.0]}, {"mine": other}]), rounds=3)
    assert "mine" not in metrics
    assert caplog.text.count(f"'mine' is a list of {lengths} numbers: not averaged") == 1


def test_a_metric_with_a_name_of_ours_is_kept_beside_ours(caplog: pytest.LogCaptureFixture) -> None:
    sent: dict[str, object] = {"failed": 7, "epsilon": 2.0, "step-size": 5.0}
    metrics = metrics_of(sending([sent, sent]), rounds=2)
    assert (metrics["failed"], metrics["node-failed"]) == (0, pytest.approx(7))
    assert (metrics["step-size"], metrics["node-step-size"]) == (1.0, pytest.approx(5))
    assert metrics["epsilon"] == pytest.approx(2)  # we have none: no privacy was chosen
    assert caplog.text.count("nodes send 'failed', which the strategy reports itself") == 1
    private = FedAvg(
        weighting=Uniform(), num_nodes=2, privacy=CentralPrivacy(clip=1.0, noise_multiplier=1.0)
    )
    metrics = metrics_of(sending([sent, sent]), private)
    assert metrics["node-epsilon"] == pytest.approx(2)
    assert metrics["epsilon"] != 2.0


def test_several_records_are_refused_where_none_has_the_name(caplog: pytest.LogCaptureFixture) -> None:
    def arrays(partition_id: int, content: RecordDict) -> RecordDict:
        reply = answer({"w": sent_model(content)["w"]}, 1)
        model = reply.pop("arrays")
        return RecordDict({**reply, "before": model, "after": record({"w": np.ones(2)})})

    def metrics(partition_id: int, content: RecordDict) -> RecordDict:
        reply = answer({"w": sent_model(content)["w"]}, 1)
        measures = reply.pop("metrics")
        return RecordDict({**reply, "train": measures, "more": MetricRecord({"loss": 1.0})})

    with caplog.at_level(logging.WARNING):
        play(FedAvg(), Federation(arrays, 2), record(START))
        play(FedAvg(), Federation(metrics, 2), record(START))
    assert (
        "sent 2 records of the kind ArrayRecord, 'before', 'after', and none is named 'arrays'"
        in caplog.text
    )
    assert (
        "sent 2 records of the kind MetricRecord, 'train', 'more', and none is named 'metrics'"
        in caplog.text
    )


def test_a_single_record_may_have_any_name() -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        reply = answer({"w": sent_model(content)["w"] + 1}, 1)
        return RecordDict({"model": reply["arrays"], "told": reply["metrics"]})

    ((arrays, _),) = play(FedExP(), Federation(node, 2), record(START))
    assert model_in(arrays)["w"].tolist() == [1.0, 1.0]


def test_a_record_beside_the_one_that_is_read_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    node = sending([{}, {}], spare=ArrayRecord([np.ones(2)]), timing=MetricRecord({"seconds": 1.0}))
    metrics_of(node, rounds=2)
    for line in ("the ArrayRecord 'spare'", "the MetricRecord 'timing'"):
        assert caplog.text.count(f"nodes send {line} beside the one that is read: it is not used") == 1


def test_a_number_beyond_all_floats_in_a_list_leaves_its_node_out(caplog: pytest.LogCaptureFixture) -> None:
    metrics = metrics_of(sending([{"n": [1, 10**400]}, {"n": [1, 2]}]))
    assert (metrics["failed"], metrics["n"]) == (1, [1.0, 2.0])
