"""The last lines of a run: where the results are, how well it did, how long it took."""

import json
from pathlib import Path

import pytest

from baselines.engine.metrics import describe_end, describe_seconds
from helpers.runs import launch, write_run


def test_last_and_best_accuracy_and_the_time(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run, "seed=0", 0, [0.1, 0.9125, 0.875], "finished")
    assert describe_end(run) == "test accuracy: last 87.5 %, best 91.2 % in round 1"
    environment = json.loads((run / "environment.json").read_text()) | {"wall_seconds": 185.2}
    (run / "environment.json").write_text(json.dumps(environment))
    assert describe_end(run).endswith("in round 1; 2 rounds in 3 min 5 s")


@pytest.mark.parametrize(
    ("metric", "line"),
    [
        ("loss", "test loss: last 0.5, best 0.25 in round 1"),
        ("mae", ""),  # its name says nothing that holds for all
    ],
)
def test_of_a_regression_it_is_the_loss(metric: str, line: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run", "seed=0", 0, [4.0, 0.25, 0.5], "finished")
    rows = tmp_path / "run" / "metrics.csv"
    rows.write_text(rows.read_text().replace("accuracy", metric))
    assert describe_end(tmp_path / "run") == line


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.26, "4.3 s"), (59.4, "59 s"), (60, "1 min 0 s"), (9660, "2 h 41 min")]
)
def test_a_time_in_words(seconds: float, text: str) -> None:
    assert describe_seconds(seconds) == text


def test_a_run_ends_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch("num_nodes=2", "rounds=1", "model=softmax", f"hydra.run.dir={tmp_path}/run") == 0
    where, how = capsys.readouterr().out.splitlines()[-2:]
    assert where == f"results: {tmp_path}/run"
    assert how.startswith("test accuracy: last ")
