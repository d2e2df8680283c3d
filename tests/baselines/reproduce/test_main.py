"""The command itself: real runs on the digits, failures, interruptions."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from baselines.reproduce.__main__ import main
from baselines.reproduce.plan import plan, table_of
from helpers.checkout import ROOT

pytestmark = pytest.mark.slow
COLUMNS = (
    *("seed", "value", "rounds", "scale", "changes", "config", "numpy", "timm", "torch", "flwr", "commit"),
    *("source", "processor", "device", "seconds"),
)


def reproduce(output: Path, *arguments: str) -> int:
    return main(["tiny", *arguments, "--output", str(output / "runs")])


def test_a_table_from_nothing_to_a_picture(
    papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert reproduce(tmp_path, "table1", "--where", "rate=0.2", "--jobs", "2") == 0
    out = capsys.readouterr().out
    assert "tiny table1: 4 of 4 runs are missing; first: 0.2 fedexp seed 0" in out
    assert "[4/4]" in out
    ours = papers / "tiny" / "ours"
    rows = pd.read_csv(ours / "table1.csv", dtype=str, keep_default_na=False)
    assert list(zip(rows.method, rows.seed, strict=True)) == [
        ("fedexp", "0"),
        ("fedexp", "1"),
        ("fedavg", "0"),
        ("fedavg", "1"),
    ]
    assert set(rows.scale) == {"full"}
    assert set(rows.changes) == {""}
    best = {}
    for folder in (tmp_path / "runs" / "tiny").iterdir():
        environment = json.loads((folder / "environment.json").read_text())
        metrics = pd.read_csv(folder / "metrics.csv")
        chosen = metrics[(metrics.split == "test") & (metrics.metric == "accuracy")]
        best["strategy=fedexp" in environment["overrides"], str(environment["seed"])] = (
            f"{100 * chosen.value.max():.6g}"
        )
    assert [
        best[method == "fedexp", seed] for method, seed in zip(rows.method, rows.seed, strict=True)
    ] == list(rows.value)
    assert (ours / "table1.png").read_bytes().startswith(b"\x89PNG")
    assert not (ours / "table1_curves.csv").exists()

    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    written = (ours / "table1.csv").read_bytes()
    assert reproduce(tmp_path, "table1", "--where", "rate=0.2") == 0
    assert "[" not in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert (ours / "table1.csv").read_bytes() == written

    table = (ours / "table1.md").read_text()
    assert "| 2 |" in table
    assert reproduce(tmp_path, "table1", "--where", "rate=0.2", "--seeds", "0", "--collect-only") == 0
    assert (ours / "table1.md").read_text() == table  # a seed that was not asked for is not lost


def test_smoke_goes_elsewhere_and_says_so(
    papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert reproduce(tmp_path, "table1", "--where", "rate=0.1", "--scale", "smoke") == 0
    changes = "rounds=2 client.local_epochs=null client.local_steps=2"
    assert f"not the paper's setting: {changes}; first: " in capsys.readouterr().out
    assert not (papers / "tiny" / "ours").exists()
    text = (tmp_path / "runs" / "smoke" / "tiny" / "table1.md").read_text()
    assert f"| 1 |  | not the paper's setting: {changes} |" in text
    again = ["table1", "--where", "rate=0.1", "--scale", "smoke", "--dry-run"]
    assert reproduce(tmp_path, *again) == 0
    assert capsys.readouterr().out == "# no run is missing; --rerun shows the commands of finished ones\n"


def test_one_that_fails_is_reported_and_the_rest_goes_on(
    papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert reproduce(tmp_path, "figure1", "rounds=3") == 1
    out = capsys.readouterr().out
    assert "[1/2] fedavg seed 0: finished" in out
    assert "failed: bad seed 0: " in out
    assert "client.optimizer" in out
    rows = pd.read_csv(papers / "tiny" / "ours" / "figure1.csv")
    assert list(rows.changes) == ["rounds=3"]
    curve = pd.read_csv(papers / "tiny" / "ours" / "figure1_curves.csv")
    assert list(curve["round"]) == [0, 1, 2, 3]
    assert curve.value.iloc[-1] == pytest.approx(rows.value.iloc[0])


def test_dry_run_prints_commands_and_runs_nothing(
    papers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path, "table1", "--where", "rate=0.1", "--seeds", "4", "--dry-run") == 0
    (comment, command) = capsys.readouterr().out.splitlines()
    assert comment == "# 0.1 fedavg seed 4"
    assert "strategy=fedavg seed=4 hydra.run.dir=" in command
    assert not (tmp_path / "runs").exists()
    assert not (papers / "tiny" / "ours").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table1", "--seeds", "a"], "--seeds a: expected whole numbers"),
        (["table1", "--seeds", "-1"], "--seeds -1: expected whole numbers"),
        (["table1", "--jobs", "0"], "--jobs 0: expected 1 or more"),
        (["table1", "--jobs", "auto"], "--jobs auto: expected 1 or more"),
        (["table1", "seed=3"], "seed=3: a table's seeds are chosen with --seeds"),
        (["nothing"], "no table 'nothing' of tiny"),
        (["table1", "--where", "x=1"], "--where x=1: table1 has"),
    ],
)
def test_a_mistake_is_one_line(
    papers: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path, *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")


def test_an_output_that_cannot_be_is_one_line(papers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(Path("/dev/null"), "table1", "--scale", "smoke", "--collect-only") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: [Errno ")


@pytest.mark.parametrize("content", ["", "seed,value\n0,1\n", '"', "\ufeff\x00"])
def test_damaged_results_are_one_line(
    papers: Path, tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = papers / "tiny" / "ours"
    ours.mkdir()
    (ours / "table1.csv").write_text(content)
    assert reproduce(tmp_path, "table1", "--collect-only") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {ours}/table1.csv ")
    assert (ours / "table1.csv").read_text() == content


def test_what_is_of_an_earlier_configuration_does_not_hang_on_the_cells_that_are_chosen(
    papers: Path, tmp_path: Path
) -> None:
    ours = papers / "tiny" / "ours"
    ours.mkdir()
    config = plan(table_of("tiny", "table1"), table_of("tiny", "table1").cells(), [0], "full", [], tmp_path)
    now = {tuple(trial.cell.keys.values()): trial.config for trial in config}
    row = "{},{},0,91.5,4,full,,{},,,,,,,,,\n"
    written = row.format("0.2", "fedexp", "another") + row.format("0.2", "fedavg", now["0.2", "fedavg"])
    (ours / "table1.csv").write_text(f"rate,method,{','.join(COLUMNS)}\n{written}")
    for chosen in ("fedexp", "fedavg"):
        assert reproduce(tmp_path, "table1", "--where", f"method={chosen}", "--collect-only") == 0
        lines = (ours / "table1.md").read_text().splitlines()
        is_earlier = {
            line.split(" | ")[1]: "of an earlier configuration" in line for line in lines if "91.5" in line
        }
        assert is_earlier == {"fedexp": True, "fedavg": False}


def test_a_seed_given_twice_is_run_once(
    papers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path, "table1", "--where", "rate=0.1", "--seeds", "4,4", "--dry-run") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_interrupted_and_started_again_it_continues(
    papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM ends the runs with it, in the background too; the next start goes on where they were."""
    monkeypatch.chdir(ROOT)
    arguments = ["figure1", "--where", "method=fedavg", "rounds=300"]
    threading.Thread(target=terminate_after_some_rounds, args=[tmp_path], daemon=True).start()
    with ignoring(signal.SIGINT):  # as a shell starts what it starts in the background
        assert reproduce(tmp_path, *arguments) == 130
    assert "the same command continues" in capsys.readouterr().err
    (folder,) = (tmp_path / "runs" / "tiny").iterdir()
    assert json.loads((folder / "environment.json").read_text())["status"] == "interrupted"
    assert reproduce(tmp_path, *arguments) == 0
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["status"] == "finished"
    assert environment["resumed"][0] >= 30
    rows = pd.read_csv(folder / "metrics.csv")
    assert list(rows[(rows.split == "test") & (rows.metric == "loss")]["round"]) == list(range(301))


@contextlib.contextmanager
def ignoring(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def terminate_after_some_rounds(output: Path) -> None:
    while not any(",test,global,loss" in line and line.startswith("40,") for line in lines_below(output)):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGTERM)


def lines_below(output: Path) -> list[str]:
    return [line for path in output.rglob("metrics.csv") for line in path.read_text().splitlines()]
