"""Every workload, small, from the command line to the table."""

import csv
import math
from pathlib import Path

import pytest

from baselines.bench.__main__ import BATCHED, WORKLOADS, main
from baselines.bench.checkpoint import Checkpoint
from baselines.bench.classification import Classification
from baselines.bench.growth import Growth
from baselines.bench.on_ray import OnRay, Workers
from baselines.bench.peers import Peer, present
from baselines.bench.plain import resnet_setting
from baselines.bench.report import Row, Workload
from baselines.bench.server_step import ServerStep
from baselines.bench.timing import Spread
from baselines.bench.tiny import Tiny
from baselines.errors import UserError

DIGITS = "dataset=digits partitioner=iid num_nodes=4"
WE_CNN = "model=we_cnn model.input_shape=[1,28,28] model.num_classes=10"
PICTURES = resnet_setting(steps=1, size=8, model="softmax")

QUICK: tuple[Workload, ...] = (
    Classification("softmax", f"{DIGITS} model=softmax", BATCHED, rounds=2),
    Classification("lenet", DIGITS, {"inline": ("", 1.1)}, rounds=2),
    Classification("resnet", PICTURES, {"inline": ("", 1.05)}, rounds=2),
    Checkpoint("checkpoint", DIGITS, rounds=2),
)
SLOW: tuple[Workload, ...] = (  # they start processes
    Tiny("tiny", rounds=3),
    Workers("lenet-ray", DIGITS, 1.15, rounds=2),
    OnRay("on-ray", DIGITS, PICTURES, parts=("whole", "messages")),
    Growth("growth", populations=(2, 3), sampled=2, rounds=2),
    ServerStep("server-step", WE_CNN, nodes=3, rank_nodes=2, steps=1, in_memory=("mask=and",)),
)
ALL = (*QUICK, *SLOW)


def table(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "benchmarks.csv").open(newline="")))


@pytest.mark.slow
@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.name)
def test_a_workload_gives_finite_positive_numbers(workload: Workload, tmp_path: Path) -> None:
    arguments = [workload.name, "--repeats", "1", "--output", str(tmp_path)]
    peers = {"Flower on Ray"} if isinstance(workload, Workers) else set[str]()
    assert main([*arguments, "--peers"] if peers else arguments, (workload,)) == 0
    rows = table(tmp_path)
    assert {row["workload"] for row in rows} == {workload.name}
    assert peers <= {row["subject"] for row in rows}
    for row in rows:
        numbers = [float(row[key]) for key in ("median", "low", "high", "repeats")]
        if row["beside"]:
            numbers += [float(row[key]) for key in ("ratio", "ratio_low", "ratio_high")]
        assert all(0 < number < math.inf for number in numbers), row
    assert any(row["beside"] for row in rows)
    assert {row["met"] for row in rows} & {"yes", "no"}
    text = (tmp_path / "benchmarks.md").read_text()
    contenders = {(row["subject"], row["quantity"]) for row in rows}
    assert text.count(f"| {workload.name} |") == len(contenders)  # a line each
    assert "- processor: " in text


def test_every_workload_is_tried_here() -> None:
    kinds = {type(workload) for workload in WORKLOADS}
    assert {type(workload) for workload in (*QUICK, *SLOW)} == kinds


class Planted(Workload):
    def measure(self, repeats: int, peers: bool) -> list[Row]:
        if self.name == "lacking":
            raise UserError("no data: fetch them")
        if self.name == "broken":
            raise RuntimeError("a worker died")
        return [Row(self.name, "ours", "round", "s", Spread.of([1.0]))]


def test_a_workload_without_data_is_skipped_with_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--output", str(tmp_path)], (Planted("lacking"), Planted("sound"))) == 0
    assert "lacking skipped: no data: fetch them\n" in capsys.readouterr().out
    assert [row["workload"] for row in table(tmp_path)] == ["sound"]


def test_mnist_is_not_downloaded_to_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLORILEGIUM_DATA", str(tmp_path / "nowhere"))
    (lenet,) = (workload for workload in WORKLOADS if workload.name == "lenet")
    absent = Classification("lenet", f"{lenet.setting} seed=404", {"inline": ("", 1.1)})  # type: ignore[attr-defined]
    assert main(["--output", str(tmp_path)], (absent,)) == 0
    assert "lenet skipped: data set MNIST is not in" in capsys.readouterr().out


def test_a_failure_is_told_and_the_others_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--output", str(tmp_path)], (Planted("broken"), Planted("sound"))) == 1
    assert "a worker died" in capsys.readouterr().err
    assert [row["workload"] for row in table(tmp_path)] == ["sound"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["lenett"], "error: no workload lenett: choose from sound\n"),
        (["--repeats", "0"], "error: --repeats=0 is out of range: expected 1 or more\n"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments, (Planted("sound"),)) == 2
    assert capsys.readouterr().err == line


def test_a_peer_that_is_not_installed_is_skipped_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    absent = Peer("Other", "no_such_module", "pip install other", lambda: 1.0)
    here = Peer("Here", "json", "pip install here", lambda: 2.0)
    found = present("tiny", [absent, here], wanted=True)
    assert list(found) == ["Here"]
    assert found["Here"]() == 2.0
    assert capsys.readouterr().out == "tiny: Other skipped, it is not installed: pip install other\n"


def test_a_peer_that_is_not_wanted_is_skipped_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    here = Peer("Here", "json", "pip install here", lambda: 2.0)
    assert present("tiny", [here], wanted=False) == {}
    assert "add --peers" in capsys.readouterr().out
