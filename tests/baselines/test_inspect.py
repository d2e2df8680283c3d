"""What a person sees of a partition and of a model before training."""

import csv
import re
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from baselines import inspect
from baselines.experiment import config
from baselines.experiment.experiment import Experiment
from baselines.reports import inspection, model_cost
from baselines.reports.model_cost import TIMES, printed_layers, times_beside
from clients import Classification

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_cost, "SECONDS", 0.02)
    monkeypatch.setattr(model_cost, "MAX_SECONDS", 0.0)


def show(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: str) -> str:
    assert inspect.main([*arguments, "--figure", str(tmp_path / "figure.png")]) == 0
    return capsys.readouterr().out


def rows(text: str, columns: int) -> np.ndarray:
    """Return the numbers of the table's rows that begin with a node."""
    cells = [line.split() for line in text.splitlines() if re.match(r"\s*\d+(\s+\d+)+\s+\d+%\s*$", line)]
    return np.array([[int(cell) for cell in line[: columns + 1]] for line in cells])


def test_counts_are_the_partition_s(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    overrides = ["partitioner=dirichlet", "num_nodes=7", "node_test_fraction=0.2", "seed=3"]
    out = show(capsys, tmp_path, *overrides)
    experiment = Experiment(" ".join(overrides))
    labels = experiment.dataset.train_targets.numpy()
    for node, (train, test) in enumerate(experiment.partitions):
        actual = rows(out, 12)[node]
        counts = np.bincount(labels[np.concatenate([train, test])], minlength=10)
        assert actual.tolist() == [node, *counts, counts.sum(), len(test)]
    assert "all" in out
    assert "Mlp" not in out  # the model was not asked for


def test_figure_has_a_bar_per_node_in_its_labels_colours(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    show(capsys, tmp_path, "partitioner=label_groups", "num_nodes=3")
    colours = np.asarray(Image.open(tmp_path / "figure.png").convert("RGB")).reshape(-1, 3)
    blue = (colours == (31, 119, 180)).all(1).sum()  # label 0 in matplotlib's tab10
    assert blue > 500


def test_table_4_3_can_be_recognised(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with open(GOLDEN / "gma_table4_3_skewed_counts.csv") as file:
        printed = np.array([[int(n) for n in row[1:]] for row in list(csv.reader(file))[1:]])
    out = show(capsys, tmp_path, "partitioner=dominant_labels", "num_nodes=10")
    ours = rows(out, 10)[:, 1:11]
    for counts in (*printed, *ours):  # two labels stand out, the others are nearly equal
        ordered = np.sort(counts)
        assert ordered[-2] > 10 * ordered[-3]
        assert ordered[-3] - ordered[0] <= max(5, 0.15 * ordered[-3])


@pytest.mark.exhaustive
@pytest.mark.parametrize("letter", "BCDG")
def test_figure_1_can_be_recognised(
    letter: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with open(GOLDEN / "weight_erosion_figure1.csv") as file:
        (printed,) = (row for row in csv.DictReader(file) if row["distribution"] == letter)
    wanted = np.array([float(printed[f"digit_{d}"]) for d in range(10)])
    out = show(
        capsys, tmp_path, "partitioner=shifted_labels", f"partitioner.distribution={letter}", "num_nodes=10"
    )
    ours = rows(out, 11)[0, 1:11]
    assert np.abs(ours / ours.sum() - wanted).max() < 0.02
    assert (ours[wanted == 0] == 0).all()


def test_the_requester_s_test_set_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = show(
        capsys,
        tmp_path,
        "partitioner=shifted_labels",
        "partitioner.distribution=C",
        "partitioner.requester=0",
        "num_nodes=10",
    )
    labels = Experiment("").dataset.test_targets
    sizes = [int(0.25 * n) for n in torch.bincount(labels)[:4]]
    assert f"evaluated on {sum(sizes)} test examples: {[*sizes, 0, 0, 0, 0, 0, 0]}" in out


@pytest.mark.slow
def test_many_nodes_are_cut_short(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = show(capsys, tmp_path, "partitioner=iid", "num_nodes=100")
    assert "..." in out
    np.testing.assert_array_equal(rows(out, 10)[:, 0], [*range(20), *range(80, 100)])
    assert "examples per node: 14 to 15, mean 14.4" in out


MACS = [("mlp30", 23_820, 23_860), ("cnn4", 480_500, 21_840), ("cnn6", 29_938_816, 905_354)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "forward", "parameters"), MACS)
def test_macs_and_parameters_by_hand(
    name: str, forward: int, parameters: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = show(capsys, tmp_path, f"model={name}", "dataset.shape=[1,28,28]")
    table, beside = out.split("printed in table")
    (total,) = re.findall(r"^ *all +([\d,]+) +([\d,]+) +([\d,]+) *$", table, re.MULTILINE)
    assert [int(n.replace(",", "")) for n in total[:2]] == [parameters, forward]
    assert "of Liu (2019)" in beside
    assert "ms," in table
    assert "MB (parameters" in table
    assert "examples by label" not in out  # the partition was not asked for


@pytest.mark.parametrize(("name", "heads"), [("transformer", 80), ("causal_transformer", 400)])
def test_a_transformer_s_cost_by_hand(
    name: str, heads: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sizes = ["model.width=8", "model.heads=2", "model.layers=1", "dataset.shape=[5]"]
    out = show(capsys, tmp_path, f"model={name}", *sizes)
    (total,) = re.findall(r"^ *all +([\d,]+) +([\d,]+) +([\d,]+) *$", out, re.MULTILINE)
    layer = 8 * 24 + 8 * 8 + 2 * 8 * 32
    parameters = (10 + 5) * 8 + 3 * 16 + layer + 24 + 8 + 32 + 8 + 90
    assert [int(n.replace(",", "")) for n in total[:2]] == [parameters, 5 * layer + heads]


def test_the_thesis_s_rows_stand_beside_ours(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = show(capsys, tmp_path, "model=cnn4", "dataset.shape=[1,28,28]").split("printed in table")[1]
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert lines["Conv2"] == ["26", "5,020", "5,000", "320,000", "conv2"]
    assert lines["FC1"] == ["16,001", "16,050", "16,001", "16,000", "fc1"]
    assert lines["Softmax"] == ["100", "-", "100", "-", "-"]
    assert lines["all"] == ["16,654", "21,840", "21,852", "480,500"]


@pytest.mark.slow
def test_the_thesis_s_times_stand_beside_ours(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tables 4.2 and 4.4; model 3 has none, it did not fit into the Raspberry Pi's memory."""
    monkeypatch.setattr(model_cost, "SECONDS", 0.5)  # the kernel counts in hundredths of a second
    out = show(capsys, tmp_path, "model=mlp30", "dataset.shape=[1,28,28]").split("table 4.2 of Liu")[1]
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert [lines[kind][0] for kind in ("real", "user", "system")] == ["57.9", "83.42", "40.56"]
    real, user, system = (float(lines[kind][1]) for kind in ("real", "user", "system"))
    assert 0 < real < 57
    assert 0 < user + system < 20 * real
    assert "table 4.4" not in show(capsys, tmp_path, "model=cnn6", "dataset.shape=[1,28,28]")


def test_a_round_of_steps_by_hand() -> None:
    """A step of 100 examples that takes 0.3 s: 13,333 of them take 40 s."""
    step = model_cost.Seconds(real=7.6, user=2.0, system=1.0).since(model_cost.Seconds(7.0, 1.0, 1.0), 2)
    assert step == model_cost.Seconds(pytest.approx(0.3), 0.5, 0.0)  # type: ignore[arg-type]
    table = times_beside(step, 100, printed_layers(TIMES, "cnn4"))
    assert list(table.columns[1].cells) == ["169.98", "503.14", "133.86"]
    assert list(table.columns[2].cells) == ["40", "66.7", "0"]


def test_backward_costs_two_products_a_layer_and_one_in_the_first() -> None:
    model = config.build(config.load("model=cnn4 dataset.shape=[1,28,28]").model)
    layers = model_cost.layers(
        model, torch.randn(2, 1, 28, 28), torch.zeros(2, dtype=torch.long), Classification()
    )
    first, *others = layers
    assert first.backward == first.forward == 24 * 24 * 10 * 25
    assert all(layer.backward == 2 * layer.forward for layer in others)
    assert [layer.output for layer in layers] == [(10, 24, 24), (20, 8, 8), (50,), (10,)]


def test_memory_of_a_step_by_hand() -> None:
    cfg = config.load("model=mlp30 dataset.shape=[1,28,28] client=adam")
    model, training = config.build(cfg.model), config.build(cfg.client)
    inputs, targets = torch.randn(8, 1, 28, 28), torch.zeros(8, dtype=torch.long)
    memory = model_cost.step_memory(model, inputs, targets, Classification(), training)
    parameters = 23_860 * 4
    assert memory["parameters"] == memory["gradients"] == parameters
    assert 2 * parameters <= memory["optimizer"] <= 2 * parameters + 64  # two moments, and step counts
    assert memory["batch"] == 8 * 784 * 4 + 8 * 8
    hidden, logits = 8 * 30 * 4, 8 * 10 * 4
    assert hidden + logits <= memory["activations"] < 4 * (hidden + logits)


def test_both_are_shown_when_neither_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = show(capsys, tmp_path, "num_nodes=4")
    assert "4 nodes" in out
    assert "Mlp on inputs of shape (1, 8, 8)" in out


def test_the_figures_name_may_stand_between_overrides(tmp_path: Path) -> None:
    target = tmp_path / "f" / "i.png"
    assert inspect.main(["partitioner=iid", "--figure", str(target), "num_nodes=4"]) == 0
    assert target.exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["partitioner=shifted_labels", "partitioner.distribution=Z"], "distribution=Z is unknown"),
        (["model=lenet"], "model=lenet takes images of 28x28 or 32x32"),
        (["partitioner=iid", "dataset=synthetic"], "no labels to count"),
        (["model=unheard_of"], "unheard_of"),
        (["model=softmax", "dataset.num_classes=null"], "model cannot be built"),
        (["partitioner=iid", "num_nodes=5000"], "num_nodes=5000 is more than"),
        (["partitioner=iid", "--figure", "/dev/null/x.png"], "Errno"),
        (["partitioner=iid", "--figure", "figure"], "--figure figure: expected a name that ends in .png"),
    ],
)
def test_a_mistake_gets_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err


def test_models_without_printed_figures_have_none_beside(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "printed" not in show(capsys, tmp_path, "model=softmax")


@pytest.mark.exhaustive
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_digit_is_cut_off_on_a_narrow_terminal(width: int, tmp_path: Path) -> None:
    written = StringIO()
    for setting in ("partitioner=dominant_labels num_nodes=10", "model=resnet18_gn"):
        console = Console(file=written, width=width)
        experiment = Experiment(f"dataset=digits {setting}")
        inspection.show_partition(experiment, tmp_path / "figure.png", console)
        inspection.show_model(experiment, "", console)
    assert "…" not in written.getvalue()
    assert "MACs backward" in written.getvalue()


def test_a_frozen_layer_has_no_backward_pass() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Linear(6, 4))
    model[0].requires_grad_(False)
    inputs, targets = torch.randn(2, 8), torch.tensor([0, 1])
    below, above = model_cost.layers(model, inputs, targets, Classification())
    assert (below.forward, below.backward) == (48, 0)
    assert (above.forward, above.backward) == (24, 24)


WAYS = [  # seconds of a step one by one and batched
    ((2e-3, 1e-3), "1 ms a step, one by one 2 ms: runtime.batch_clients=true is 2 times as fast"),
    ((1e-3, 1.5e-3), "1.5 ms a step, one by one 1 ms: runtime.batch_clients=false is 1.5 times as fast"),
    ((1e-3, 1.02e-3), "1.02 ms a step, one by one 1 ms: about the same"),
]


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both ways be tried, however slow this machine is."""
    monkeypatch.setattr(model_cost, "MAX_SECONDS", 1e9)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(("seconds", "message"), WAYS)
def test_the_faster_way_to_train_nodes_is_named(
    seconds: tuple[float, float],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_cost, "seconds_of", lambda *_: seconds)
    out = show(capsys, tmp_path, "model=softmax", "client.local_steps=4", "client.local_epochs=null")
    assert f"batched nodes (10 with 4 steps a round): {message}" in out


@pytest.mark.exhaustive
@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["num_nodes=1"], "batched nodes: there is one node in a round"),
        (["personal=ditto", "node_test_fraction=0.2"], "nodes cannot be batched; they train one by one"),
        (
            ["nodes_per_round=2"],
            r"\(2 with 20 steps a round\): [\d.]+ ms a step, one by one [\d.]+",
        ),
    ],
)
def test_both_ways_are_measured_where_there_are_two(
    overrides: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert re.search(message, show(capsys, tmp_path, "model=softmax", *overrides))


def test_long_steps_are_not_tried(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "batched nodes: not measured; steps as long" in show(capsys, tmp_path, "model=softmax")
