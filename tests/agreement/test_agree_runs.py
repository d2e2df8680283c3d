"""Whole runs, as the command line starts them: uninterrupted, resumed, batched, and on Ray."""

import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from baselines import run
from baselines.engine import checkpoint
from baselines.experiment import experiment
from helpers.agreement.plain import Plain, Round
from helpers.agreement.plain_methods import FedProx, Scaffold
from helpers.agreement.tolerance import ROUNDING, TO_THE_BIT, Taken, Tolerance, hold
from helpers.agreement.ways import full, plainly
from helpers.checkout import ROOT

ROUNDS = 4
MLP = "dataset=digits partitioner=dirichlet model=mlp model.hidden=8 client.batch_size=64"
# SCAFFOLD's variates are computed in another order: see test_agree_methods.py.
METHODS: dict[str, tuple[str, type[Plain], Tolerance]] = {
    "averaging": (f"{MLP} client.optimizer.momentum=0.9", Plain, TO_THE_BIT),
    "proximal": (f"{MLP} strategy=fedprox strategy.mu=0.5", FedProx, TO_THE_BIT),
    "kept": (f"{MLP} client=adam client.keep_optimizer=true", Plain, TO_THE_BIT),
    "frozen": ("dataset=digits model=frozen client.batch_size=64", Plain, TO_THE_BIT),
    "control variates": (f"{MLP} strategy=scaffold", Scaffold, Tolerance(1e-6, 1e-4)),
}


def launch(folder: Path, overrides: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run it as ``python -m baselines.run`` does, and see it finish."""
    arguments = [*shlex.split(full(overrides)), f"hydra.run.dir={folder}", "checkpoint_every=1"]
    monkeypatch.setattr("sys.argv", ["run", *arguments])
    assert run.main() == 0


def hold_last(folder: Path, overrides: str, expected: list[Round], tolerance: Tolerance) -> None:
    """Hold the model that a run ended with beside the plain loop's, and the losses that it has written."""
    saved = checkpoint.load(folder)
    assert saved is not None
    assert saved.server_round == len(expected)
    setup = experiment.load(full(overrides))
    start, end = (
        {name: torch.from_numpy(np.array(array.numpy())) for name, array in arrays.items()}
        for arrays in (setup.initial_arrays(), saved.arrays)
    )
    rows = [row.split(",") for row in (folder / "metrics.csv").read_text().splitlines()]
    columns = {name: rows[0].index(name) for name in ("round", "split", "metric", "value")}
    written: dict[tuple[int, str], float] = {
        (int(row[columns["round"]]), row[columns["metric"]]): float(row[columns["value"]])
        for row in rows[1:]
        if row[columns["split"]] == "train"
    }
    for t, each in enumerate(expected, start=1):
        for name, number in each.metrics.items():
            assert written[t, name] == pytest.approx(number, rel=tolerance.of_metrics), f"round {t}: {name}"
    actual = Taken(start, [Round(end, expected[-1].metrics)])
    hold(actual, expected[-1:], tolerance)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["averaging", "kept", "frozen", "control variates"])
def test_a_resumed_run(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides, kind, tolerance = METHODS[method]
    expected = plainly(overrides, kind, ROUNDS)
    launch(tmp_path, f"{overrides} rounds=2", monkeypatch)
    hold_last(tmp_path, overrides, expected[:2], tolerance)
    launch(tmp_path, f"{overrides} rounds={ROUNDS} resume=true", monkeypatch)
    hold_last(tmp_path, overrides, expected, tolerance)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("batched", "tolerance"), [("true", ROUNDING), ("false", TO_THE_BIT)])
def test_batched_as_the_command_line_asks(
    batched: str, tolerance: Tolerance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(tmp_path, f"{MLP} rounds=2 runtime.batch_clients={batched}", monkeypatch)
    hold_last(tmp_path, MLP, plainly(MLP), tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["proximal", "frozen"])
def test_on_ray(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides, kind, tolerance = METHODS[method]
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))  # where workers find the users' models
    launch(tmp_path, f"{overrides} rounds=3 runtime=ray runtime.cpus=2", monkeypatch)
    hold_last(tmp_path, overrides, plainly(overrides, kind, 3), tolerance)
