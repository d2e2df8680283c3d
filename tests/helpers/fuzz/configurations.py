"""A run of drawn overrides: finite results, or one line that names a setting that was given."""

import csv
import math
import shlex
from pathlib import Path
from random import Random

from helpers.fuzz.command import Ended, launched
from helpers.fuzz.drawn_overrides import Case, draw
from helpers.fuzz.verdict import Result, died, not_one_line

CHECKED = "passed every check; too large to run, or not inline"


def try_one(random: Random, folder: Path, repeat: str) -> Result:
    """Run a case and judge it."""
    case = draw(random)
    arguments = [*case.overrides, f"hydra.run.dir={folder}/run", f"data_root={folder}/data"]
    outcome = launched(arguments, case.runs)
    command = f"python -m baselines.run {shlex.join(case.overrides)}"
    return Result(_outcome(outcome), fault(outcome, case, folder / "run"), command)


CHOSEN = {  # groups that an override of another one chooses, or builds
    "strategy": ["weighting", "mask", "step_size", "server_optimizer"],
    "aggregation": ["weighting", "step_size"],
    "logger": ["logger"],
}


def names_of(overrides: tuple[str, ...]) -> list[str]:
    """Return what a refusal may call the settings: in full, by the last part, or a class by its part."""
    names = []
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0].rstrip(".")
        path = key.split(".")
        names += [key or override, path[-1], *path[-2:-1] * (path[-1] == "_target_")]
        names += CHOSEN.get(path[0], [])
    return names


def fault(outcome: Ended, case: Case, run: Path) -> str:
    """Return what is not as promised in how a run ended; empty where all is."""
    if end := died(outcome):
        return end
    if outcome.status == 2:
        return not_one_line(outcome, names_of(case.overrides))
    if case.refused:
        return f"accepted: {case.refused}"
    return "" if outcome.status is None else _not_finite(run / "metrics.csv")


def _outcome(outcome: Ended) -> str:
    if outcome.status is None:
        return CHECKED
    return "0, finite results" if outcome.status == 0 else "2, one line that names the setting"


def _not_finite(metrics: Path) -> str:
    with open(metrics, newline="") as file:
        rows = [row for row in csv.DictReader(file) if not math.isfinite(float(row["value"]))]
    return f"not finite: {rows[0]}" if rows else ""
