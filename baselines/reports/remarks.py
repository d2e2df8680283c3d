"""Remarks: what a reader of a table of runs must be told of them, a line each."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from baselines.engine.environment import DIVERGED, ENDED, FINISHED, environment
from baselines.errors import UserError
from baselines.experiment.identity import PACKAGES

from .same_setting import hashes


def remarks(runs: Iterable[Path], left_out: Mapping[Path, str]) -> Iterator[str]:
    """Yield which runs did not finish, which do not count, and where a line's have other versions.

    ``runs`` and ``left_out`` are as :func:`baselines.reports.measurements.examined` has them.
    """
    told = {run: environment(run) for run in runs}
    for run, one in told.items():
        if one["status"] not in ENDED:
            yield f"not finished, counted up to its last round ({one['status']}): {run}"
    reasons: dict[str, list[str]] = {}
    for run, reason in left_out.items():
        reasons.setdefault(reason, []).append(str(run))
    for reason, names in reasons.items():
        yield f"left out ({reason}): {', '.join(names)}"
    settings = hashes(told)
    for package in PACKAGES:
        found: dict[str, dict[str, None]] = {}
        for run, one in told.items():
            version = (one.get("versions") or {}).get(package)
            found.setdefault(settings[run], {}).update({str(version): None} if version else {})
        if mixed := [list(versions) for versions in found.values() if len(versions) > 1]:
            yield f"one line of the table has {package} {' and '.join(mixed[0])}: their numbers may differ"


def unfinished(runs: Iterable[str]) -> set[str]:
    """Return which of the runs have rounds left; one that tells nothing has none."""
    return {run for run in runs if environment(Path(run)).get("status", FINISHED) not in ENDED}


def diverged(frame: pd.DataFrame) -> set[str]:
    """Return which runs have diverged; of measurements by hand, which tell no status, none."""
    return set(frame.run[frame.status == DIVERGED]) if "status" in frame else set()


def divergences(frame: pd.DataFrame) -> Iterator[str]:
    """Yield a line that names the runs that have diverged, if any."""
    if runs := sorted(diverged(frame)):
        yield f"diverged, and never the best: {', '.join(runs)}"


def finished(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements of the runs that have.

    Raises
    ------
    UserError : where none has
    """
    runs = frame.run.unique()
    cut = unfinished(runs)
    if len(cut) == len(runs):
        raise UserError("no run has finished, so that their last rounds cannot be compared")
    return frame[~frame.run.isin(cut)]
