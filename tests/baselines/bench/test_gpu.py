"""scripts/test-gpu without a GPU: its table, its command lines, its workloads at small sizes."""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from baselines.bench import gpu, on_device, report
from baselines.bench.__main__ import WORKLOADS, _parser, main
from baselines.bench.gpu import Check, format_terminal, write_checks
from baselines.bench.on_device import Captured, model_of
from baselines.bench.peers import Peer
from baselines.bench.plain import Client, train_round
from baselines.bench.report import Row
from baselines.bench.timing import Contenders, Spread
from baselines.experiment import experiment
from baselines.experiment.overrides import ROOT

FILE = Path("tests/a/test_b.py")
TOLD = """collecting ... collected 6 items

tests/a/test_b.py::test_ways[lenet-one by one, eager] PASSED [ 20%]
tests/a/test_b.py::test_ways[lenet-batched, eager] FAILED [ 40%]
tests/a/test_b.py::test_alike PASSED [ 60%]
tests/a/test_b.py::test_other SKIPPED (no card) [ 80%]
tests/a/test_b.py::test_setup ERROR [100%]
FAILED tests/a/test_b.py::test_ways[lenet-batched, eager] - AssertionError
SKIPPED [1] tests/a/test_b.py:9: no card
"""


def test_each_test_function_is_a_line() -> None:
    assert list(gpu.parse_checks(FILE, TOLD)) == [
        Check("a/test_b.py::test_ways", "1 of 2 pass; failed: [lenet-batched, eager]", "all pass", False),
        Check("a/test_b.py::test_alike", "1 of 1 pass", "all pass", True),
        Check("a/test_b.py::test_other", "0 of 1 pass; 1 skipped: no card", "all pass", None),
        Check("a/test_b.py::test_setup", "0 of 1 pass", "all pass", False),
    ]


def test_what_did_not_end_or_begin_is_told() -> None:
    *_, last = gpu.parse_checks(FILE, TOLD, None)
    assert last.found == "out of time before its end"
    assert last.verdict == "not seen"
    *_, last = gpu.parse_checks(FILE, f"{TOLD}Fatal Python error: Segmentation fault\n", -11)
    assert last.found == "ended early with status -11: Fatal Python error: Segmentation fault"
    assert last.verdict == "no"
    (only,) = gpu.parse_checks(FILE, "E   ModuleNotFoundError: No module named 'timm'\n")
    assert only.found == "did not run: E   ModuleNotFoundError: No module named 'timm'"
    assert only.verdict == "no"


def test_the_files_are_those_with_marked_tests() -> None:
    found = gpu.find_test_files()
    assert Path("tests/agreement/test_agree_gpu.py") in found
    assert all((ROOT / file).exists() for file in found)
    assert "test_arrows.py" not in {file.name for file in found}


def test_the_table_says_what_holds(tmp_path: Path) -> None:
    checks = [
        Check("one", "1 of 1 pass", "all pass", True),
        Check("two | three", "0 of 1 pass", "all pass", False),
        Check("four", "out of time", "measured", None),
        Check("limit", "3 ms", "", True),
    ]
    write_checks(checks, {"gpu": "a card"}, tmp_path / "gpu.md")
    text = (tmp_path / "gpu.md").read_text()
    assert "| two \\| three | 0 of 1 pass | all pass | no |\n" in text
    assert "| limit | 3 ms |  |  |\n" in text
    assert "1 hold, 1 do not, 1 not seen\n" in text
    assert text.endswith("- gpu: a card\n")
    assert format_terminal(checks, "a card").row_count == 4


def test_benchmark_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    spread = Spread(0.02, 0.01, 0.03, 3)
    rows = [
        Row("softmax", "ours", "round", "s", spread, at_most=0.015),
        Row("softmax", "ours", "round", "s", spread, "limit", Spread(2.0, 1.0, 3.0, 3), 3.0),
        Row("softmax", "limit", "round", "s", spread),
    ]
    report.write(rows, {}, tmp_path)
    assert report.read(tmp_path) == rows
    assert report.read(tmp_path / "nowhere") == []
    ours, limit = (gpu._check(line, rows) for line in report.lines(rows))
    assert ours.what == "softmax: ours, a round"
    assert ours.expected == "≤ 15 ms; ≤ 3x limit"
    assert ours.verdict == "no"  # one of two goals
    assert limit.verdict == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu_it_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.endswith("sees no GPU here: run this where there is one\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("small", [False, True])
def test_the_benchmark_understands_its_command_lines(small: bool, tmp_path: Path) -> None:
    told = argparse.Namespace(device="cuda", small=small, repeats=2)
    sizes = on_device.SMALL if small else on_device.Sizes()
    for workload in on_device.workloads("cuda", sizes):
        line = gpu.command(workload.name, told, tmp_path)
        assert line[1:3] == ["-m", "baselines.bench"]
        options = _parser(WORKLOADS).parse_args(line[3:])
        assert (options.workloads, options.device, options.small) == ([workload.name], "cuda", small)
        assert (options.repeats, options.output) == (2, tmp_path)


def test_small_needs_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--small"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet", "server-step", "deterministic"])
def test_a_workload_on_another_device(name: str, tmp_path: Path) -> None:
    told = ["--device", "cpu", "--small", "--repeats", "1", "--output", str(tmp_path)]
    assert main([name, *told]) == 0
    rows = list(csv.DictReader((tmp_path / "benchmarks.csv").open(newline="")))
    assert {row["met"] for row in rows} & {"yes", "no"}
    assert any(float(row["ratio"]) > 0 for row in rows if row["beside"])


@pytest.mark.slow
def test_what_else_a_user_could_run_stands_beside_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def present(workload: str, peers: Sequence[Peer], wanted: bool) -> Contenders:
        assert wanted
        return {peer.name: lambda: 1.0 for peer in peers}

    monkeypatch.setattr(on_device, "present", present)
    told = ["--device", "cpu", "--small", "--peers", "--repeats", "1", "--output", str(tmp_path)]
    assert main(["softmax", *told]) == 0
    rows = list(csv.DictReader((tmp_path / "benchmarks.csv").open(newline="")))
    beside = {row["beside"] for row in rows if row["subject"] == "ours"}
    assert {"Flower on Ray", "pfl-research", "hand-written round"} <= beside


@pytest.mark.parametrize("together", [False, True])
def test_the_hand_written_round_is_fedavg(together: bool) -> None:
    """Full batches leave no order to differ in."""
    this = experiment.load(
        f"{on_device._setting((1, 28), 40, 4, 10, 'cpu')} model=mlp30 "
        "client.local_epochs=null client.local_steps=1"
    )
    clients = [Client.of(this, k) for k in range(4)]
    model = this.model()
    expected = {name: values.clone() for name, values in model.state_dict().items()}
    captured = Captured(this, 1, together)
    for _ in range(3):
        captured.one_round()
        expected = train_round(model, expected, clients)
    for name, values in model_of(captured).state_dict().items():
        torch.testing.assert_close(values, expected[name])


@pytest.mark.slow
def test_a_dry_run_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (one,) = (each for each in on_device.workloads("cpu", on_device.SMALL) if each.name == "server-step")
    monkeypatch.setattr(gpu, "find_test_files", lambda: [Path("tests/clients/test_augment.py")])
    monkeypatch.setattr(gpu.on_device, "workloads", lambda *_: (one,))
    arguments = ["--device", "cpu", "--small", "--repeats", "1", "--output", str(tmp_path)]
    assert gpu.main(arguments) == 1  # the test needs a GPU: it was not seen
    text = (tmp_path / "gpu.md").read_text()
    assert "test_augment.py::test_every_device_draws_alike | " in text
    assert "| server-step: mask=agreement, a step | " in text
    assert "- sizes: small\n" in text
    assert "written: " in capsys.readouterr().out
