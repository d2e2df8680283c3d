"""Tidy: all measurements of many runs as one frame."""

from collections.abc import Iterable
from math import isfinite, nan
from pathlib import Path

import pandas as pd

from baselines.engine.divergence import divergence_of
from baselines.engine.environment import DIVERGED, FINISHED, environment
from baselines.engine.metrics import COLUMNS, EVALUATIONS
from baselines.errors import UserError
from strategies.shared import protocol
from strategies.shared.divergence import is_count

from .labels import described
from .measurements import examined, measured, node_of

MEASURED = ["setting", "seed", "run", "status", "round", "split", "model", "node", "metric", "value"]
EVALUATION = ["round", "split", "model"]  # what the measures of a model at a time have in common


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
    rows = pd.concat(_with_status(run) for run in runs)
    rows["node"] = node_of(rows.model)
    merged = described(runs).merge(rows, on="run")
    return merged[[*(name for name in merged if name not in MEASURED), *MEASURED]], left_out


def _with_status(run: Path) -> pd.DataFrame:
    """Return a run's measurements, and how it ended.

    Older runs called themselves finished where they had diverged, and gave a model of NaN an accuracy: no
    measure is left of it.
    """
    rows = measured(run).assign(run=str(run), status=str(environment(run)["status"]))
    own = rows[rows.split.isin(EVALUATIONS)]
    if own.value.map(isfinite).all():
        return rows
    lost = own[(own.metric == protocol.LOSS) & own.value.isna()]
    places = pd.MultiIndex.from_frame(lost[EVALUATION])
    void = pd.MultiIndex.from_frame(rows[EVALUATION]).isin(places) & ~rows.metric.map(is_count)
    rows.loc[void, "value"] = nan
    if divergence_of(rows[list(COLUMNS)].itertuples(index=False, name=None)) is not None:
        rows["status"] = rows["status"].replace(FINISHED, DIVERGED)
    return rows
