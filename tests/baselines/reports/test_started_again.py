"""The same setting and seed in several folders, as after a second try: the last started counts."""

import json
from pathlib import Path

import pytest

from baselines import compare, results
from baselines.reports import curves
from baselines.reports.runs import Panel
from helpers.runs import write_run

TRIES = {  # folder: started, its accuracies and what each round took
    "c": (None, [0.1, 0.2], 1.0),  # of a version that did not tell
    "b": ("2026-03-01T12:00:00+0200", [0.1, 0.5], 2.0),
    "a": ("2026-03-01T11:00:00+0000", [0.1, 0.7], 4.0),  # an hour later
}


@pytest.fixture
def tries(tmp_path: Path) -> Path:
    """Return a folder of three runs of FedAvg and one of FedExP, all of seed 0."""
    for name, (started, accuracies, seconds) in {**TRIES, "other": (None, [0.1, 0.8], 8.0)}.items():
        run = tmp_path / name
        overrides = f"strategy={'fedexp' if name == 'other' else 'fedavg'}"
        write_run(run, overrides, 0, accuracies, "finished")
        with (run / "metrics.csv").open("a") as file:
            file.write(f"1,train,global,seconds,{seconds}\n")
        environment = json.loads((run / "environment.json").read_text())
        (run / "environment.json").write_text(
            json.dumps(environment | ({"started": started} if started else {}))
        )
    return tmp_path


def test_the_last_started_counts_in_table_pairs_and_curves(tries: Path) -> None:
    frame = results.load(tries)
    assert {Path(run).name for run in frame.run} == {"a", "other"}
    assert results.last(frame).value.tolist() == [0.7, 0.8]
    (row,) = results.paired(frame, "strategy", "fedavg").to_dict("records")
    assert (row["seeds"], row["mean"]) == (1, pytest.approx(0.1))
    actual = curves.statistics(frame, Panel("test", "accuracy"), "seconds")
    assert actual.x.to_dict() == {("fedavg", 0): 0, ("fedavg", 1): 4, ("fedexp", 0): 0, ("fedexp", 1): 8}


def test_the_others_are_named_in_one_line(tries: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([str(tries)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out")]
    assert line == f"left out (another run has the same setting and seed): {tries}/b, {tries}/c"


def test_a_finished_one_counts_before_a_later_one_that_is_not(tries: Path) -> None:
    path = tries / "a" / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "interrupted"}))
    assert {Path(run).name for run in results.load(tries).run} == {"b", "other"}


def test_of_equal_starts_one_counts(tries: Path) -> None:
    for name in "abc":
        path = tries / name / "environment.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"started": TRIES["a"][0]}))
    assert {Path(run).name for run in results.load(tries).run} == {"c", "other"}


def test_a_folder_that_is_given_twice_is_no_second_try(
    tries: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tries)
    assert compare.main(["a", str(tries / "a")]) == 0
    assert "left out" not in capsys.readouterr().out
