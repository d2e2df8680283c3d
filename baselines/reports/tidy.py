"""Tidy: all measurements of many runs as one frame."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from baselines.errors import UserError

from .labels import described
from .measurements import examined, measured, node_of

MEASURED = ["setting", "seed", "run", "round", "split", "model", "node", "metric", "value"]


def tidy(folders: Iterable[Path]) -> tuple[pd.DataFrame, dict[Path, str]]:
    """Return the frame of :func:`baselines.results.load`, and the runs that are not in it, with why.

    Raises
    ------
    UserError : when there is no run to read
    """
    folders = list(folders)
    runs, left_out = examined(folders)
    if not runs:
        for run, reason in left_out.items():
            raise UserError(f"{run}/{reason}: run it again, or move the folder away")
        named = ", ".join(map(str, folders))
        raise UserError(f"no run in {named}: give the folder of a run or of a sweep")
    rows = pd.concat(measured(run).assign(run=str(run)) for run in runs)
    rows["node"] = node_of(rows.model)
    merged = described(runs).merge(rows, on="run")
    return merged[[*(name for name in merged if name not in MEASURED), *MEASURED]], left_out
