"""Runs of an experiment in this process, for tests."""

import json
import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pandas as pd
import pytest
from flwr.app import Context, Message

from baselines import run
from baselines.apps import client_app_of, run_on_grid
from baselines.experiment import experiment
from baselines.experiment.preflight import check
from baselines.grids.inline import InlineGrid

App = Callable[[Message, Context], Message]
FORKED = multiprocessing.get_context("forkserver")
LIBRARIES = [
    "flwr.serverapp",
    "hydra",
    "matplotlib.pyplot",
    "pandas",
    "pytest",
]
FORKED.set_forkserver_preload([*LIBRARIES, "sklearn.datasets", "sklearn.model_selection", "torch"])
METRICS = ["round", "split", "model", "metric", "value", "seed"]  # the columns of what compare reads


def played(overrides: str, folder: Path, wrap: Callable[[App], App] = lambda app: app) -> pd.DataFrame:
    """Run an experiment on the inline grid, its ClientApp wrapped; return :func:`metrics_in` its folder."""
    setup = experiment.load(overrides)
    check(setup)
    app = wrap(client_app_of(overrides))
    run_on_grid(setup, InlineGrid(app, setup.settings.num_nodes), folder)  # type: ignore[arg-type]
    return metrics_in(folder)


def launch(*arguments: str) -> int:
    """Run ``python -m baselines.run`` in this process; return the exit status."""
    before, sys.argv = sys.argv, ["run", *arguments]
    try:
        return run.main()
    finally:
        sys.argv = before


def own_options(
    folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, code: str, **options: str
) -> str:
    """Write a module of the user's own, and a file of YAML for each ``group="option: YAML"``.

    Return the argument that adds the options.
    """
    (folder / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, module, raising=False)  # another test's
    for group, text in options.items():
        name, _, yaml = text.partition(": ")
        (folder / "conf" / group).mkdir(parents=True)
        (folder / "conf" / group / f"{name}.yaml").write_text(yaml)
    return f"--config-dir={folder / 'conf'}"


class Ended(NamedTuple):
    """What a command has left: its exit status, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run_command(words: Sequence[str], folder: Path, paths: Sequence[Path] = ()) -> Ended:
    """Run Python in a folder, forked from a process that has imported the libraries: most of a command's time.

    Parameters
    ----------
    words : after ``python``: ``-m MODULE``, or a file, and arguments
    folder : the process's, the first on its path as Python has it
    paths : folders of PYTHONPATH
    """
    with TemporaryDirectory() as aside:
        written = [Path(aside) / name for name in ("stdout", "stderr")]
        process = FORKED.Process(target=_run_module, args=(tuple(words), folder, tuple(paths), written))
        process.start()
        process.join()
        return Ended(process.exitcode or 0, *(path.read_text(encoding="utf-8") for path in written))


def _run_module(words: tuple[str, ...], folder: Path, paths: tuple[Path, ...], written: list[Path]) -> None:
    is_module = words[0] == "-m"
    for descriptor, path in enumerate(written, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    os.chdir(folder)
    sys.path[:0] = [str(folder), *map(str, paths)]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    sys.argv = [*words[is_module:]]
    if is_module:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")


def process_of(log: Path, *arguments: str) -> ForkServerProcess:
    """Start ``python -m baselines.run`` in a process of its own, forked from one with the libraries."""
    process = FORKED.Process(target=_launch, args=(log, arguments))
    process.start()
    return process


def _launch(log: Path, arguments: tuple[str, ...]) -> None:
    sys.stdout = sys.stderr = open(log, "a", buffering=1)  # noqa: SIM115 - until the process ends
    raise SystemExit(launch(*arguments))


def metrics_in(folder: Path) -> pd.DataFrame:
    """Return metrics.csv without the rows that differ between equal runs: times."""
    rows = pd.read_csv(folder / "metrics.csv")
    times = rows.metric.str.endswith("seconds") & (rows.metric != "virtual_seconds")
    return rows[~times].reset_index(drop=True)


def curve(rows: pd.DataFrame, split: str, metric: str) -> list[float]:
    """Return a metric round by round."""
    own = rows[(rows.split == split) & (rows.metric == metric)].sort_values("round")
    return [float(value) for value in own.value]


def lines_in(folder: Path) -> list[str]:
    """Return the lines of metrics.csv, byte for byte but for the values that are times."""
    lines = (folder / "metrics.csv").read_bytes().decode().splitlines()
    times = [",virtual_seconds," not in line and "seconds," in line for line in lines]
    return [line.rpartition(",")[0] if time else line for line, time in zip(lines, times, strict=True)]


def write_run(folder: Path, overrides: str, seed: int, accuracies: list[float], status: str) -> None:
    """Write a run's results by hand."""
    folder.mkdir()
    environment = {"overrides": overrides, "seed": seed, "status": status}
    (folder / "environment.json").write_text(json.dumps(environment))
    rows = [f"{r},test,global,accuracy,{value}" for r, value in enumerate(accuracies)]
    (folder / "metrics.csv").write_text("\n".join(["round,split,model,metric,value", *rows]) + "\n")
