"""Measurements: the rows of metrics.csv of those runs whose files are whole."""

import warnings
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd

from baselines.engine.environment import damage
from baselines.engine.metrics import COLUMNS, NODE, OWN_GROUP
from baselines.errors import UserError

from .labels import started_again


def examined(folders: list[Path]) -> tuple[list[Path], dict[Path, str]]:
    """Return the runs at or below ``folders`` that count, sorted, and why the others do not.

    A run that cannot be read does not, nor one whose setting and seed another has, see ``started_again``.
    """
    marks = ("metrics.csv", "environment.json")
    paths = [path.parent for folder in folders for mark in marks for path in folder.rglob(mark)]
    found = sorted({path.resolve(): path for path in paths}.values())
    reasons = {run: damage(run) or _unreadable(run) for run in found}
    repeated = started_again([run for run in found if reasons[run] is None])
    reasons |= dict.fromkeys(repeated, "another run has the same setting and seed")
    return (
        [run for run, reason in reasons.items() if reason is None],
        {run: reason for run, reason in reasons.items() if reason is not None},
    )


def _unreadable(run: Path) -> str | None:
    try:
        return None if len(measured(run)) else "metrics.csv has no measurement yet"
    except UserError as error:
        return str(error)


def measured(run: Path) -> pd.DataFrame:
    """Return the rows of a run's metrics.csv.

    Raises
    ------
    UserError : in words that name the file, when a row is cut or has a word for a number
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # it would drop what has no heading
            rows = pd.read_csv(run / "metrics.csv", dtype=str, keep_default_na=False, index_col=False)
        if list(rows) != list(COLUMNS) or rows.isna().any(axis=None):
            raise ValueError("a row or the heading is cut off")
        if any(rows[name].str.contains("\n").any() for name in COLUMNS):
            raise ValueError("a quote is not closed")
        return rows.astype({"round": int, "value": float})
    except (
        OSError,
        ValueError,
        pd.errors.ParserWarning,
    ) as error:  # no UTF-8 is one of these
        raise UserError(f"metrics.csv is damaged ({error})") from error


def by_round(run: Path, split: str, metric: str) -> "pd.Series[float]":
    """Return a metric by round, averaged over the nodes; ``*`` stands for any part of its name.

    Raises
    ------
    UserError : when the run has not measured it, or metrics.csv is damaged
    """
    rows = measured(run)
    chosen = rows[(rows.split == split) & rows.metric.map(lambda name: fnmatchcase(name, metric))]
    if chosen.empty:
        raise UserError(f"{run} has no {metric} on the {split} set")
    return over_nodes(chosen, ["round"])


def node_of(models: "pd.Series[str]") -> "pd.Series[int]":
    """Return the node that each row is of, by its partition; empty where it is of no single one."""
    return models.str.extract(NODE, expand=False).astype("Int64")


def over_nodes(rows: pd.DataFrame, by: list[str]) -> "pd.Series[float]":
    """Return a metric's mean over the nodes, as the run has written it; else over the models there are.

    What is no number in one model is none in the mean.
    """
    own_group = rows[rows.model == OWN_GROUP].groupby(by).value.mean()
    return own_group.combine_first(mean_of_all(rows, by))


def mean_of_all(rows: pd.DataFrame, by: str | list[str]) -> "pd.Series[float]":
    """Return the mean ``value`` of each group, NaN where one of them is."""
    groups = rows.groupby(by).value
    return groups.mean().where(groups.count() == groups.size())
