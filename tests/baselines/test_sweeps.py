"""Sweeps: started again they skip what is finished, whatever launches their jobs."""

import math
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from hydra.types import RunMode
from omegaconf import OmegaConf

from baselines.engine.metrics import is_lower_better, read_objective
from baselines.errors import UserError
from baselines.experiment import hydra_callbacks
from baselines.reports import comparison
from helpers.checkout import ROOT
from helpers.runs import METRICS, launch

CHOICES = ["seed=0,1", "nodes_per_round=2,9", "num_nodes=3", "rounds=2", "model=softmax", "resume=true"]
NAMES = {f"model=softmax,nodes_per_round=2,num_nodes=3,seed={seed}" for seed in (0, 1)}


def sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "baselines.run", "-m", f"hydra.sweep.dir={folder}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_failure_and_skips_what_is_finished(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-m", f"hydra.sweep.dir={tmp_path}", *CHOICES]
    assert launch(*arguments) == 2  # a user's mistake among others
    assert capfd.readouterr().err.count("error: nodes_per_round=9 is out of range") == 2
    finished = finished_in(tmp_path)
    assert {folder.name for folder in finished} == NAMES
    assert launch(*arguments) == 2
    assert capfd.readouterr().out.count("finished already: ") == 2
    assert finished_in(tmp_path) == finished


def finished_in(folder: Path) -> dict[Path, int]:
    return {path.parent: path.stat().st_mtime_ns for path in runs(folder)}


def launchers() -> list[object]:
    slow = pytest.mark.slow
    return [
        pytest.param(["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], id="joblib", marks=slow),
        pytest.param(["hydra/launcher=submitit_local"], id="submitit", marks=slow),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", launchers())
def test_so_does_one_whose_jobs_are_processes(launcher: list[str], tmp_path: Path) -> None:
    name = launcher[0].partition("=")[2].removesuffix("_local")
    pytest.importorskip(f"hydra_plugins.hydra_{name}_launcher")
    done = sweep(tmp_path, *launcher, *CHOICES)
    assert done.returncode == 2
    assert re.search(r"^1 of \d runs done in ", done.stdout, re.MULTILINE)
    finished = finished_in(tmp_path)
    assert {folder.name for folder in finished} == NAMES
    again = sweep(tmp_path, *launcher, *CHOICES)
    assert again.returncode == 2
    assert finished_in(tmp_path) == finished
    if "submitit" not in "".join(launcher):  # whose jobs print into files of their own
        assert done.stderr.count("error: nodes_per_round=9 is out of range") == 2
        assert again.stdout.count("finished already: ") == 2
        lines = [line for line in done.stdout.splitlines() if "round " in line]
        assert lines
        assert all(re.match(r"run \d: round ", line) for line in lines)


@pytest.mark.slow
def test_random_search_lists_the_best_and_draws_the_same_trials_again(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    arguments = ["hydra/sweeper=random_search", "hydra.sweeper.n_trials=3", "rounds=2", "num_nodes=3"]
    done = sweep(tmp_path, *arguments, "resume=true")
    assert done.returncode == 0, done.stderr
    actual = yaml.safe_load((tmp_path / "optimization_results.yaml").read_text())
    values = {path.parent.name: read_objective(path.parent, "test/accuracy") for path in runs(tmp_path)}
    assert len(values) == 3
    assert actual["best_value"] == max(value for value in values.values() if value is not None)
    (winner,) = (name for name, value in values.items() if value == actual["best_value"])
    assert f"client.optimizer.lr={actual['best_params']['client.optimizer.lr']}" in winner
    again = sweep(tmp_path, *arguments, "resume=true")
    assert again.stdout.count("finished already: ") == 3
    assert len(runs(tmp_path)) == 3


@pytest.mark.slow
def test_a_run_that_is_there_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also not by another job of the same sweep; ``resume=false`` says to."""
    small = ["model=softmax", "num_nodes=3", "rounds=1"]
    one = ["-m", *small, "seed=0,1", f"hydra.sweep.dir={tmp_path}", "hydra.sweep.subdir=same"]
    assert launch(*one) == 2
    assert f"error: {tmp_path / 'same'} holds a run: resume=true" in capsys.readouterr().err
    before = (tmp_path / "same" / "metrics.csv").read_bytes()
    again = [*small, "strategy=fedexp", f"hydra.run.dir={tmp_path / 'same'}"]
    assert launch(*again) == 2
    assert (tmp_path / "same" / "metrics.csv").read_bytes() == before
    assert launch(*again, "resume=true") == 2
    assert "another configuration (weighting._target_, step_size._target_, " in capsys.readouterr().err
    assert launch(*again, "resume=false") == 0
    assert (tmp_path / "same" / "metrics.csv").read_bytes() != before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "seed=0,1", "hydra.run.dir={}"], "hydra.run.dir is not read with -m: set hydra.sweep.dir"),
        (["hydra.sweep.dir={}"], "hydra.sweep.dir is not read without -m: set hydra.run.dir"),
    ],
)
def test_a_folder_that_hydra_does_not_read_is_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert launch(*(argument.format(tmp_path) for argument in arguments)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "status"), [("train/los", 2), ("train/loss", 0)])
def test_a_search_is_told_that_its_objective_was_not_measured(
    objective: str,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any other sweeper than Hydra's own looks for the best."""
    for sweeper, searches in (
        ("basic_sweeper.BasicSweeper", False),
        ("optuna_sweeper.OptunaSweeper", True),
    ):
        hydra = OmegaConf.create({"mode": RunMode.MULTIRUN, "sweeper": {"_target_": sweeper}})
        assert hydra_callbacks.is_search(hydra) == searches  # type: ignore[arg-type]
    for module in ("run", "experiment.hydra_callbacks"):
        monkeypatch.setattr(f"baselines.{module}.is_search", lambda settings: True)
    assert (
        launch(
            "-m",
            f"objective={objective}",
            "rounds=1",
            f"hydra.sweep.dir={tmp_path}",
            "num_nodes=2",
            "model=softmax",
        )
        == status
    )
    message = f"error: objective={objective} was not measured: see "
    assert (message in capsys.readouterr().err) == (status == 2)


@pytest.mark.slow
@pytest.mark.parametrize(("searches", "status"), [(True, 1), (False, 0)])
def test_a_search_is_told_that_a_run_has_diverged(
    searches: bool,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Optuna's sweeper ends at a NaN; of a run that has failed it notes that, and goes on."""
    monkeypatch.setattr("baselines.run.is_search", lambda settings: searches)
    monkeypatch.setattr("baselines.engine.metrics.read_objective", lambda *_: math.nan)
    setting = ("rounds=1", "num_nodes=2", "model=softmax", "seed=0,1", "resume=true")
    for _ in range(2):  # the second time both are finished
        assert launch("-m", *setting, f"hydra.sweep.dir={tmp_path}") == status
        message = "error: objective=test/accuracy is nan: the run has diverged, and counts as failed"
        assert capsys.readouterr().err.count(message) == 2 * searches


def runs(folder: Path) -> list[Path]:
    return list(folder.rglob("metrics.csv"))


def test_an_objective_is_the_last_round_s_mean_over_the_models(tmp_path: Path) -> None:
    lines = ["round,split,model,metric,value", "1,test,a,accuracy,0.1", "2,test,a,accuracy,0.4"]
    lines += ["2,test,b,accuracy,0.6", "2,test,b,loss,3", "2,node-test,b,accuracy,0.9", "3,train,g,loss,1"]
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n")
    assert read_objective(tmp_path, "test/accuracy") == 0.5
    assert read_objective(tmp_path, "node-test/accuracy") == 0.9
    assert read_objective(tmp_path, "node-test/loss") is None


def test_the_best_of_a_sweep_come_first() -> None:
    curves = {
        "worse": frame([(0, 0.9, 0.5), (1, 0.9, 0.7)]),  # best round, then the last
        "better": frame([(0, 0.1, 0.7), (1, 0.1, 0.7)]),
        "best": frame([(0, 0.1, 0.8)]),
    }
    rows = pd.concat(part.assign(setting=label, run=label) for label, part in curves.items())

    def order(count: int) -> list[str]:
        return list(comparison.best(rows, count).setting.unique())

    assert order(2) == ["best", "better"]
    assert order(9) == ["best", "better", "worse"]
    with pytest.raises(UserError, match="--best 0 is out of range"):
        order(0)
    assert comparison.best(rows.assign(metric="loss"), 1).setting.unique().tolist() == ["worse"]
    with pytest.raises(UserError, match="no run has a test metric to be ordered by"):
        comparison.best(rows.assign(split="train"), 1)


def frame(runs: list[tuple[int, float, float]]) -> pd.DataFrame:
    rows = [
        (r, "test", "global", "accuracy", value, seed)
        for seed, *values in runs
        for r, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=METRICS)


@pytest.mark.parametrize(
    ("objective", "direction", "wrong"),
    [
        ("test/loss", "maximize", True),
        ("test/loss", "minimize", False),
        ("test/accuracy", "Direction.minimize", True),
        ("test/accuracy", "maximize", False),
        ("test/loss", None, False),
    ],
)
def test_a_search_for_the_worst_is_refused(objective: str, direction: str | None, wrong: bool) -> None:
    sweeper = {"_target_": "optuna_sweeper.OptunaSweeper"} | ({"direction": direction} if direction else {})
    hydra: Any = OmegaConf.create({"mode": RunMode.MULTIRUN, "sweeper": sweeper})
    with pytest.raises(UserError, match="looks for the worst") if wrong else nullcontext():
        hydra_callbacks.check_direction(hydra, objective, is_lower_better(objective))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hydra.run.dir={}/x"], "hydra.run.dir is not read with -m: set hydra.sweep.dir"),
        (
            ["objective=test/loss", "hydra/sweeper=random_search", "hydra.sweep.dir={}/x"],
            "hydra.sweeper.direction=maximize looks for the worst: set hydra.sweeper.direction=minimize",
        ),
    ],
)
def test_what_no_run_of_a_sweep_could_do_is_said_once(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "hydra/sweeper=random_search" in arguments:
        pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    own = [argument.format(tmp_path) for argument in arguments]
    assert launch("-m", "seed=0,1,2", *own) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not list(tmp_path.rglob("metrics.csv"))
