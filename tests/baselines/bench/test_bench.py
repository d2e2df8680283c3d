"""Every workload, small, from the command line to the table."""

import csv
import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from baselines.bench.__main__ import (
    ADDMM,
    BATCHED,
    CONVOLUTIONS,
    LOOP,
    ON_RAY,
    PROCESSES,
    TINY,
    TINY_WAYS,
    WORKLOADS,
    main,
)
from baselines.bench.by_hand import Client, Processes, addmm, loop
from baselines.bench.peers import Peer, list_present_peers
from baselines.bench.report import Row, Spread, Workload
from baselines.bench.rounds import Growth, RoundTime
from baselines.bench.server_step import ServerStep
from baselines.bench.start import Start
from baselines.errors import UserError

DIGITS = "device=cpu dataset=digits partitioner=iid num_nodes=4"
WE_CNN = "model=we_cnn model.input_shape=[1,28,28] model.num_classes=10"
INLINE = {"inline, cpu": CONVOLUTIONS["inline, cpu"]}

QUICK: tuple[Workload, ...] = (
    RoundTime("softmax", f"{DIGITS} model=softmax", BATCHED, {LOOP: loop}, 2),
    RoundTime("mlp30", f"{DIGITS} model=mlp30", INLINE, {LOOP: loop}, 2),
    RoundTime("lenet", DIGITS, INLINE, {LOOP: loop}, 2),
)
SLOW: tuple[Workload, ...] = (  # they start processes
    RoundTime("tiny", TINY, TINY_WAYS, {ADDMM: addmm}, 3, Client.of_regression),
    RoundTime("lenet-ray", DIGITS, ON_RAY, {PROCESSES: Processes}, 2),
    Start("start"),
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
    peers = {"Flower on Ray"} if workload.name == "lenet-ray" else set[str]()
    assert main([*arguments, "--peers"] if peers else arguments, (workload,)) == 0
    rows = table(tmp_path)
    assert {row["workload"] for row in rows} == {workload.name}
    assert peers <= {row["subject"] for row in rows}
    for row in rows:
        numbers = [float(row[key]) for key in ("median", "low", "high", "repeats")]
        if row["beside"]:
            numbers += [float(row[key]) for key in ("ratio", "ratio_low", "ratio_high")]
        assert all(0 < number < math.inf for number in numbers), row
    assert any(row["beside"] for row in rows) or workload.name == "start"
    assert {row["met"] for row in rows} & {"yes", "no"}
    text = (tmp_path / "benchmarks.md").read_text()
    contenders = {(row["subject"], row["quantity"]) for row in rows}
    assert text.count(f"| {workload.name} |") == len(contenders)  # a line each
    assert "- processor: " in text


def test_every_workload_is_tried_here() -> None:
    def kinds(workloads: Iterable[Workload]) -> set[tuple[str, type]]:
        return {(workload.name, type(workload)) for workload in workloads}

    assert kinds((*QUICK, *SLOW)) == kinds(WORKLOADS)


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
    assert isinstance(lenet, RoundTime)
    absent = dataclasses.replace(lenet, setting=f"{lenet.setting} seed=404")
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
    contenders = list_present_peers("tiny", [absent, here], is_requested=True)
    assert list(contenders) == ["Here"]
    assert contenders["Here"]() == 2.0
    assert capsys.readouterr().out == "tiny: Other skipped, it is not installed: pip install other\n"


def test_a_peer_that_is_not_wanted_is_skipped_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    here = Peer("Here", "json", "pip install here", lambda: 2.0)
    assert list_present_peers("tiny", [here], is_requested=False) == {}
    assert "add --peers" in capsys.readouterr().out
