"""What a run measures when asked to: beside numbers worked out by hand, and without touching the others."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pytest
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

from baselines.apps import client_app_of, run_on_grid
from baselines.engine import metrics as measures
from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.grids.inline import InlineGrid
from helpers.runs import App, curve, lines_in, played
from strategies.shared.flower_private import become_server

SETTING = "num_nodes=4 rounds=2 nodes_per_round=3 node_test_fraction=0.2 model=softmax"


def message(**records: ArrayRecord | MetricRecord) -> Message:
    become_server()
    return Message(RecordDict(dict(records)), dst_node_id=1, message_type="train")


def test_bytes_are_those_of_arrays_and_metrics() -> None:
    arrays, metrics = ArrayRecord({"w": torch.zeros(10, 3)}), MetricRecord({"loss": 0.5})
    header = 128  # of an array as numpy writes it
    both = message(arrays=arrays, metrics=metrics)
    assert measures.count_bytes([both, both]) == 2 * [header + 4 * 30 + len("w") + 8 + len("loss")]


def test_bytes_of_a_transport_that_compresses() -> None:
    zeros, noise = ArrayRecord({"w": torch.zeros(1000)}), ArrayRecord({"w": torch.randn(1000)})
    (raw,) = measures.count_bytes([message(arrays=zeros)])
    small, large, again = measures.count_compressed_bytes(
        [message(arrays=a) for a in (zeros, noise, noise)]
    )
    assert small < 0.05 * raw
    assert 0.8 * raw < large < 1.1 * raw
    assert again == large


def test_the_spread_over_nodes_by_hand() -> None:
    """Of eleven nodes the worst tenth are two; a node without test data has no part."""
    accuracies = [0.1, 0.3, *[0.9] * 9]
    records = [
        MetricRecord({"num-examples": 5, "partition-id": k, "accuracy": a, "loss": 1 - a})
        for k, a in enumerate(accuracies)
    ]
    records.append(MetricRecord({"num-examples": 0}))
    actual = measures.node_spread([message(metrics=record) for record in records])
    mean = (0.4 + 8.1) / 11
    variance = (0.8**2 + 0.6**2) / 11 - (0.9 - mean) ** 2
    assert actual == pytest.approx(
        {
            "accuracy_worst": 0.1,
            "accuracy_worst_tenth": 0.2,
            "accuracy_variance": variance,
            "loss_worst": 0.9,
            "loss_worst_tenth": 0.8,
            "loss_variance": variance,
        }
    )
    records[0]["loss"] = float("nan")
    worst = measures.node_spread([message(metrics=record) for record in records])
    assert str(worst["loss_worst"]) == str(worst["loss_worst_tenth"]) == "nan"


def test_classes_by_hand(tmp_path: Path) -> None:
    labels, predicted = torch.tensor([0, 0, 0, 2, 2]), torch.tensor([0, 0, 2, 2, 1])
    measures.write_classes(tmp_path, ["global"], [(labels, predicted)])
    classes = pd.read_csv(tmp_path / "per_class.csv").set_index("class")
    assert classes.examples.to_dict() == {0: 3, 1: 0, 2: 2}
    assert classes.accuracy[[0, 2]].tolist() == pytest.approx([2 / 3, 1 / 2])
    assert classes.precision.tolist() == [1, 0, 1 / 2]
    assert classes.accuracy.isna()[1]  # there is no example of it
    cells = pd.read_csv(tmp_path / "confusion.csv").pivot_table("examples", "class", "predicted")
    assert cells.to_numpy().tolist() == [[2, 0, 1], [0, 0, 0], [0, 1, 1]]


@pytest.mark.slow
def test_what_is_asked_for_is_added_and_nothing_else_changes(tmp_path: Path) -> None:
    before = played(SETTING, tmp_path / "before")
    more = "count_bytes=true save=last evaluation={per_class:true,per_node:true,node_spread:true}"
    after = played(f"{SETTING} {more}", tmp_path / "after")
    added = after.metric.str.contains("bytes|worst|variance") | after.split.str.startswith("site-")
    pd.testing.assert_frame_equal(after[~added].reset_index(drop=True), before, check_exact=True)
    header, names = 128, len("fc.weight") + len("fc.bias")
    down = 3 * (2 * header + 4 * (64 * 10 + 10) + names)
    assert curve(after, "train", "bytes_down") == [down] * 2
    assert down < curve(after, "train", "bytes_up")[0] < down + 1000  # the nodes' metrics as well
    of_nodes = after[(after.split == "site-train") & (after["round"] == 2)]
    for metric in ("bytes_down", "bytes_up"):  # three nodes take part
        own = of_nodes[of_nodes.metric == metric]
        assert len(set(own.model) & {f"node {k}" for k in range(4)}) == len(own) == 3
        assert own.value.sum() == curve(after, "train", metric)[1]
    for metric in ("loss", "accuracy"):  # the mean that the server takes is over the examples
        own = of_nodes.pivot_table("value", "model", "metric")
        mean = (own[metric] * own.num_examples).sum() / own.num_examples.sum()
        assert mean == pytest.approx(curve(after, "train", metric)[1])
        assert own[metric].nunique() == len(own) == 3
    on_nodes = after[(after.split == "site-test") & (after.metric == "accuracy")].groupby("round").value
    assert on_nodes.min().tolist() == curve(after, "node-test", "accuracy_worst")
    assert on_nodes.count().tolist() == [4, 4]
    packed = played(f"{SETTING} count_bytes=compressed", tmp_path / "packed")
    assert 0.5 * down < curve(packed, "train", "bytes_down")[1] < down
    classes = pd.read_csv(tmp_path / "after" / "per_class.csv")
    accuracy = (classes.accuracy * classes.examples).sum() / classes.examples.sum()
    assert accuracy == pytest.approx(curve(after, "test", "accuracy")[-1])
    worst = curve(after, "node-test", "accuracy_worst")
    assert all(low < mean for low, mean in zip(worst, curve(after, "node-test", "accuracy"), strict=True))


@pytest.mark.slow
def test_the_bytes_of_a_question_count(tmp_path: Path) -> None:
    """Two of three candidates train: five models go down, and each candidate's answer goes up."""
    asking = "strategy=power_of_choice strategy.asks=true strategy.candidates=3 nodes_per_round=2"
    more = f"num_nodes=4 rounds=2 model=softmax count_bytes=true evaluation.per_node=true {asking}"
    rows = played(more, tmp_path)
    model = 2 * 128 + 4 * (64 * 10 + 10) + len("fc.weight") + len("fc.bias")
    assert curve(rows, "train", "bytes_down") == [5 * model] * 2
    own = rows[(rows.split == "site-train") & (rows["round"] == 1)].pivot_table("value", "model", "metric")
    assert sorted(own.bytes_down) == [model, 2 * model, 2 * model]
    assert 0 < own.bytes_up.min() < 100
    assert own.bytes_up.sum() == curve(rows, "train", "bytes_up")[0]


class LastFirst(InlineGrid):
    """A grid whose nodes are done in another order than they were asked in."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        return super().send_and_receive(messages, timeout=timeout)[::-1]


@pytest.mark.slow
def test_the_order_in_which_nodes_are_done_decides_no_byte(tmp_path: Path) -> None:
    more = "count_bytes=true evaluation={per_node:true,node_spread:true}"
    setting = f"{SETTING.replace('=4', '=12').replace('=3', '=11')} {more}"
    played(setting, tmp_path / "in order")
    run_on_grid(experiment.load(setting), LastFirst(client_app_of(setting), 12), tmp_path / "last first")
    expected = lines_in(tmp_path / "in order")
    assert sum(",site-train,node 1" in line for line in expected) > 10
    assert lines_in(tmp_path / "last first") == expected


class WithoutFirst(InlineGrid):
    """A grid whose first node trains and is too late, in each round."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        queried = list(messages)
        replies = super().send_and_receive(queried, timeout=timeout)
        return replies[1:] if queried and queried[0].metadata.message_type == "train" else replies


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fedavg", "local"])
def test_the_bytes_of_nodes_add_up_where_one_is_late(strategy: str, tmp_path: Path) -> None:
    setting = f"num_nodes=4 rounds=2 model=softmax strategy={strategy} count_bytes=true"
    run_on_grid(experiment.load(setting), WithoutFirst(client_app_of(setting), 4), tmp_path)
    rows = pd.read_csv(tmp_path / "metrics.csv")
    own = rows[rows.split == "site-train"]
    for metric in ("bytes_down", "bytes_up"):
        of_nodes = own[own.metric == metric]
        assert of_nodes.groupby("round").size().tolist() == [4, 4]
        assert of_nodes.groupby("round").value.sum().tolist() == curve(rows, "train", metric)
    assert (own[own.metric == "bytes_up"].value == 0).sum() == 2


@pytest.mark.slow
def test_classes_of_a_regression_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"evaluation.per_class=true: the data set has no classes"):
        played("dataset=synthetic num_nodes=20 evaluation.per_class=true rounds=1", tmp_path)


def test_a_node_that_trains_several_models_tells_their_mean() -> None:
    replies = [
        message(metrics=MetricRecord({"loss": loss, "partition-id": k}))
        for k, loss in ((0, 1.0), (1, 5.0), (0, 9.0))
    ]
    assert measures.per_node_metrics(replies) == {"node 0": {"loss": 5.0}, "node 1": {"loss": 5.0}}


def test_a_node_without_a_loss_has_no_accuracy_either() -> None:
    """A node that is not ours may send one: the best of all nodes would be the worst."""
    pairs = [(0.5, 0.5), (float("nan"), 0.885)]
    records = [MetricRecord({"num-examples": 5, "loss": loss, "accuracy": right}) for loss, right in pairs]
    actual = measures.node_spread([message(metrics=record) for record in records])
    assert len(actual) == 6
    assert all(value != value for value in actual.values())


def test_the_classes_of_a_model_without_outputs(tmp_path: Path) -> None:
    """Argmax of NaN is class 0, whose recall would be 1."""
    labels = torch.tensor([0, 0, 1])
    outputs = [(labels, torch.tensor([0, -1, 1])), (labels, torch.tensor([0, 1, 1]))]
    measures.write_classes(tmp_path, ["lost", "sound"], outputs)
    classes = pd.read_csv(tmp_path / "per_class.csv", keep_default_na=False)
    lost, sound = classes[classes.model == "lost"], classes[classes.model == "sound"]
    assert lost[["accuracy", "precision"]].to_numpy().tolist() == [["nan", "nan"]] * 2
    assert sound[["accuracy", "precision"]].astype(float).to_numpy().tolist() == [[0.5, 1], [1, 0.5]]
    assert lost[["class", "examples"]].to_numpy().tolist() == [[0, 2], [1, 1]]
    cells = pd.read_csv(tmp_path / "confusion.csv", keep_default_na=False, dtype=str)
    cells = cells[(cells.model == "lost") & (cells.examples != "0")]
    assert cells[["class", "predicted"]].to_numpy().tolist() == [["0", "nan"], ["0", "0"], ["1", "1"]]


def test_who_took_part_in_few_rounds_is_named_the_rarest_first() -> None:
    """Half is not few; nor is a node that was asked once and came, or was never asked."""
    took_and_lost = {"a": (4, 5), "b": (5, 5), "c": (0, 10), "d": (1, 0), "site e": (1, 9)}
    counts = {name: {"updates": took, "left_out": lost} for name, (took, lost) in took_and_lost.items()}
    assert measures.find_rare_nodes(counts) == "c (0 of 10), site e (1 of 10), a (4 of 9)"
    many = {f"partition {k}": {"updates": 0, "left_out": 3} for k in range(25)}
    assert measures.find_rare_nodes(many).endswith("partition 9 (0 of 3), 15 more")
    assert not measures.find_rare_nodes({})


@pytest.mark.slow
def test_a_run_ends_with_who_took_part_in_few_rounds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(app: App) -> App:
        def fails(message: Message, context: Context) -> Message:
            if context.node_config["partition-id"] == 1 and message.metadata.message_type == "train":
                raise RuntimeError("no memory")
            return app(message, context)

        return fails

    expected = "answered in less than half of the rounds that asked them: partition 1 (0 of 2)"
    setting = "num_nodes=3 rounds=2 model=softmax"
    for wrap, count in ((failing, 1), (lambda app: app, 0)):
        caplog.clear()
        with caplog.at_level("WARNING", "flwr"):
            played(f"{setting} seed={count}", tmp_path / str(count), wrap)
        assert [record.getMessage() for record in caplog.records].count(expected) == count
