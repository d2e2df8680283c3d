"""scripts/test-gpu without a GPU: its table, its command lines, its workloads at small sizes."""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from baselines.bench import gpu, peers
from baselines.bench.__main__ import WORKLOADS, _parser, main
from baselines.bench.by_hand import Client, train_round
from baselines.bench.gpu import Captured, Check, format_terminal, model_of, read_tests, write_checks
from baselines.bench.peers import Peer
from baselines.bench.report import Contenders, Row, Spread, write
from baselines.experiment.experiment import load
from baselines.experiment.overrides import ROOT

FILE = Path("tests/a/test_b.py")
FAILED = """..FsE  [100%]
E   AssertionError
FAILED tests/a/test_b.py::test_ways[lenet-batched, eager] - AssertionError
ERROR tests/a/test_b.py::test_setup
SKIPPED [1] tests/a/test_b.py:9: no card
1 failed, 2 passed, 1 skipped, 7 deselected, 3 warnings, 1 error in 3.21s
"""


@pytest.mark.parametrize(
    ("output", "value", "verdict"),
    [
        ("....\n4 passed, 2 deselected in 9.81s\n", "4 of 4 pass", "yes"),
        (
            FAILED,
            "2 of 5 pass; failed: test_ways[lenet-batched, eager] - AssertionError; test_setup; 1 skipped: no card",
            "no",
        ),
        (
            "s\nSKIPPED [1] tests/a/test_b.py:9: no card\n1 skipped in 0.10s\n",
            "0 of 1 pass; 1 skipped: no card",
            "not seen",
        ),
        (
            "ERROR tests/a/test_b.py - ModuleNotFoundError: No module named 'timm'\n1 error in 0.52s\n",
            "0 of 1 pass; failed: ERROR tests/a/test_b.py - ModuleNotFoundError: No module named 'timm'",
            "no",
        ),
        ("..\nFatal Python error: fault\n", "ended early with status 1: Fatal Python error: fault", "no"),
        ("3 deselected in 0.10s\n", "ended early with status 1: 3 deselected in 0.10s", "no"),
    ],
)
def test_each_file_is_a_line(output: str, value: str, verdict: str) -> None:
    check = read_tests(FILE, output, 1)
    assert (check.what, check.value, check.verdict) == (str(FILE), value, verdict)


def test_a_file_that_took_too_long_was_not_seen() -> None:
    check = read_tests(FILE, "....", None)
    assert (check.value, check.verdict) == ("out of time before its end", "not seen")


def test_the_files_are_those_with_marked_tests() -> None:
    actual = gpu.find_test_files()
    assert Path("tests/agreement/test_agree_gpu.py") in actual
    assert all((ROOT / file).exists() for file in actual)
    assert "test_arrows.py" not in {file.name for file in actual}


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


def test_a_benchmark_holds_where_it_meets_all_its_goals(tmp_path: Path) -> None:
    spread = Spread(0.02, 0.01, 0.03, 3)
    rows = [
        Row("softmax", "ours", "round", "s", spread, at_most=0.015),
        Row("softmax", "ours", "round", "s", spread, "limit", Spread(2.0, 1.0, 3.0, 3), 3.0),
        Row("softmax", "limit", "round", "s", spread),
    ]
    write(rows, {}, tmp_path)
    ours, limit = gpu.read_benchmark("softmax", tmp_path, "", 0)
    assert ours.what == "softmax: ours, a round"
    assert ours.expected == "≤ 15 ms; ≤ 3x limit"
    assert ours.verdict == "no"  # one of two goals
    assert limit.verdict == ""


def test_a_benchmark_without_numbers_says_why(tmp_path: Path) -> None:
    (late,) = gpu.read_benchmark("softmax", tmp_path, "softmax ...", None)
    (broken,) = gpu.read_benchmark("softmax", tmp_path, "a\nRuntimeError: no memory\nwritten: x\n", 1)
    write([], {}, tmp_path)
    (lacking,) = gpu.read_benchmark("softmax", tmp_path, "softmax skipped: no data\n", 0)
    assert [check.verdict for check in (late, broken, lacking)] == ["not seen", "no", "no"]
    assert [broken.value, lacking.value] == ["RuntimeError: no memory", "softmax skipped: no data"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu_it_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.endswith("sees no GPU here: run this where there is one\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("small", [False, True])
def test_the_benchmark_understands_its_command_lines(small: bool, tmp_path: Path) -> None:
    given = argparse.Namespace(device="cuda", small=small, repeats=2)
    sizes = gpu.SMALL if small else gpu.Sizes()
    for workload in gpu.workloads("cuda", sizes):
        line = gpu.bench_command(workload.name, given, tmp_path)
        assert line[1:3] == ["-m", "baselines.bench"]
        options = _parser(WORKLOADS).parse_args(line[3:])
        assert (options.workloads, options.device, options.small) == ([workload.name], "cuda", small)
        assert (options.repeats, options.output) == (2, tmp_path)


def test_small_needs_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--small"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet", "server-step"])
def test_a_workload_on_another_device(name: str, tmp_path: Path) -> None:
    given = ["--device", "cpu", "--small", "--repeats", "1", "--output", str(tmp_path)]
    assert main([name, *given]) == 0
    rows = list(csv.DictReader((tmp_path / "benchmarks.csv").open(newline="")))
    assert {row["met"] for row in rows} & {"yes", "no"}
    assert any(float(row["ratio"]) > 0 for row in rows if row["beside"])


@pytest.mark.slow
def test_what_else_a_user_could_run_stands_beside_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def present(workload: str, known: Sequence[Peer], wanted: bool) -> Contenders:
        assert wanted
        return {peer.name: lambda: 1.0 for peer in known}

    monkeypatch.setattr(peers, "list_present_peers", present)
    given = ["--device", "cpu", "--small", "--peers", "--repeats", "1", "--output", str(tmp_path)]
    assert main(["softmax", *given]) == 0
    rows = list(csv.DictReader((tmp_path / "benchmarks.csv").open(newline="")))
    beside = {row["beside"] for row in rows if row["subject"] == "ours"}
    assert {"Flower on Ray", "pfl-research", "hand-written round"} <= beside


@pytest.mark.parametrize("together", [False, True])
def test_the_hand_written_round_is_fedavg(together: bool) -> None:
    """Full batches leave no order to differ in."""
    experiment = load(
        f"{gpu.device_setting((1, 28), 40, 4, 10, 'cpu')} model=mlp30 "
        "client.local_epochs=null client.local_steps=1"
    )
    clients = [Client.of(experiment, k) for k in range(4)]
    model = experiment.model()
    expected = {name: values.clone() for name, values in model.state_dict().items()}
    captured = Captured(experiment, 1, together)
    for _ in range(3):
        captured.one_round()
        expected = train_round(model, expected, clients)
    for name, values in model_of(captured).state_dict().items():
        torch.testing.assert_close(values, expected[name])


@pytest.mark.slow
def test_a_dry_run_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (one,) = (each for each in gpu.workloads("cpu", gpu.SMALL) if each.name == "server-step")
    monkeypatch.setattr(gpu, "find_test_files", lambda: [Path("tests/clients/test_augment.py")])
    monkeypatch.setattr(gpu, "workloads", lambda *_: (one,))
    arguments = ["--device", "cpu", "--small", "--repeats", "1", "--output", str(tmp_path)]
    assert gpu.main(arguments) == 1  # the test needs a GPU: it was not seen
    text = (tmp_path / "gpu.md").read_text()
    assert "| tests/clients/test_augment.py | 0 of " in text
    assert "| server-step: mask=agreement, a step | " in text
    assert "- sizes: small\n" in text
    assert "written: " in capsys.readouterr().out
