"""python -m baselines.compare FOLDER...: the runs of a sweep as a table (also Markdown) and a figure.

Runs that differ in nothing but their seed are one line: mean and standard deviation over seeds. "node
accuracy" is the last one on the nodes' own test data, where they keep any.
"""

import argparse
import os
import sys
from pathlib import Path

import pandas as pd
from rich.console import Console

from .engine.environment import environment
from .errors import UserError
from .reports import curves, summary
from .reports.labels import read
from .reports.measurements import examined


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
    if options.figure:
        curves.check_name(options.figure)
    runs = find_runs(options.folders)
    settings = read(runs)
    if options.best is not None:
        settings = best(settings, options.best)
    target = options.figure or _common_parent(runs) / "comparison.png"
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False)
    table = summary.summarise(settings)
    summary.show(table, console)
    curves.draw(settings, target)
    target.with_suffix(".md").write_text(summary.markdown(table))
    for run in map(Path, pd.concat(settings.values()).run.unique()):
        if (status := environment(run)["status"]) != "finished":
            console.print(f"not finished, counted up to its last round ({status}): {run}", soft_wrap=True)
    for run, reason in examined(options.folders)[1].items():
        console.print(f"left out ({reason}): {run}", soft_wrap=True)
    console.print(f"figure: {target}", soft_wrap=True)


def find_runs(folders: list[Path]) -> list[Path]:
    """Return every whole run at or below ``folders`` that has measured anything, sorted.

    Raises
    ------
    UserError : when there is none
    """
    runs, left_out = examined(folders)
    if not runs:
        for run, reason in left_out.items():
            raise UserError(f"{run}/{reason}: run it again, or move the folder away")
        raise UserError(f"no run in {', '.join(map(str, folders))}: give the folder of a run or of a sweep")
    return runs


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


def _common_parent(runs: list[Path]) -> Path:
    return Path(os.path.commonpath([run.resolve() for run in runs]))


if __name__ == "__main__":
    sys.exit(main())
