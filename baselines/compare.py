"""python -m baselines.compare FOLDER...: the runs of a sweep as a table (also Markdown) and a figure.

Runs that differ in nothing but their seed are one line: mean and standard deviation over seeds. "node
accuracy" is the last one on the nodes' own test data, where they keep any.
"""

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from . import figures, summary
from .errors import UserError
from .identity import BESIDE


def main(arguments: list[str] | None = None) -> int:
    """Print the table, draw the figure; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m baselines.compare", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="run folders, or folders of run folders")
    parser.add_argument("--figure", type=Path, help="where to draw (default: comparison.png beside)")
    parser.add_argument("--best", type=int, metavar="N", help="only the N settings of best last accuracy")
    options = parser.parse_args(arguments)
    try:
        _compare(options)
    except (UserError, OSError) as error:  # OSError: where the figure cannot be written
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _compare(options: argparse.Namespace) -> None:
    runs = find_runs(options.folders)
    curves = read(runs)
    if options.best is not None:
        curves = best(curves, options.best)
    target = options.figure or _common_parent(runs) / "comparison.png"
    console = Console(highlight=False, markup=False)
    table = summary.summarise(curves)
    console.print(summary.terminal(table))
    figures.draw(curves, target)
    target.with_suffix(".md").write_text(summary.markdown(table))
    for run in runs:
        if (status := _environment(run)["status"]) != "finished":
            console.print(f"counted as far as it came ({status}): {run}", soft_wrap=True)
    console.print(f"figure: {target}", soft_wrap=True)


def find_runs(folders: list[Path]) -> list[Path]:
    """Return every run folder with a measurement at or below ``folders``, sorted."""
    files = (path for folder in folders for path in folder.rglob("metrics.csv"))
    found = {path.parent for path in files if _measured(path)}
    if not found:
        named = ", ".join(map(str, folders))
        raise UserError(f"no run with results in {named}: give the folder of a run or of a sweep")
    return sorted(found)


def _measured(metrics: Path) -> bool:
    """Say whether a run wrote this file, and at least one row into it."""
    with open(metrics) as file:
        lines = sum(1 for _, _ in zip(file, range(2), strict=False))
    return lines == 2 and (metrics.parent / "environment.json").is_file()


def read(runs: list[Path]) -> dict[str, pd.DataFrame]:
    """Return {label: rows of metrics.csv with a column seed}, a label for each setting.

    The label is made of the overrides in which the runs differ, the seed and what decides no number aside.
    """
    settings: list[dict[str, str]] = []
    seeds: list[int] = []
    for run in runs:
        environment = _environment(run)
        pairs = (item.partition("=") for item in shlex.split(environment["overrides"]))
        settings.append({key: value for key, _, value in pairs if _decides(key)})
        seeds.append(environment["seed"])
    keys = dict.fromkeys(key for setting in settings for key in setting)
    differing = [key for key in keys if len({setting.get(key) for setting in settings}) > 1]
    curves: dict[str, list[pd.DataFrame]] = {}
    for run, setting, seed in zip(runs, settings, seeds, strict=True):
        label = ", ".join(_part(key, setting.get(key)) for key in differing) or "all"
        curves.setdefault(label, []).append(pd.read_csv(run / "metrics.csv").assign(seed=seed))
    return {label: pd.concat(frames) for label, frames in curves.items()}


def _environment(run: Path) -> dict[str, Any]:
    environment: dict[str, Any] = json.loads((run / "environment.json").read_text())
    return environment


def _decides(key: str) -> bool:
    """Say whether an override decides a run's numbers, the seed aside: not where data and options lie."""
    return key.lstrip("+~").partition(".")[0] not in ("seed", "data_root", "hydra", *BESIDE)


def best(curves: dict[str, pd.DataFrame], count: int) -> dict[str, pd.DataFrame]:
    """Return the settings whose last test accuracy is highest in the mean over seeds, the best one first.

    Raises
    ------
    UserError : when no run has an accuracy, or none is asked for
    """
    if count < 1:
        raise UserError(f"--best {count} is out of range: expected a whole number above 0")
    last = {
        label: accuracy.groupby("seed").last().mean()
        for label, frame in curves.items()
        if len(accuracy := summary.measured(frame, "accuracy"))
    }
    if not last:
        raise UserError("--best: no run has a test accuracy to be ordered by")
    ordered = sorted(last, key=lambda label: -last[label])
    return {label: curves[label] for label in ordered[:count]}


def _part(key: str, value: str | None) -> str:
    """Name a differing override: a group by its option alone, a value with its key."""
    if value is None:
        return f"{key} default"
    return value if key == "strategy" else f"{key}={value}"


def _common_parent(runs: list[Path]) -> Path:
    return Path(os.path.commonpath([run.resolve() for run in runs]))


if __name__ == "__main__":
    sys.exit(main())
