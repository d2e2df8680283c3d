"""results: runs as one tidy table, and common queries on it.

    from baselines import results

    frame = results.load("multirun/mine")
    results.last(frame, "accuracy").groupby("strategy").value.agg(["mean", "std"])
    results.rounds_to(frame, "accuracy", 0.9)
    results.paired(frame, "strategy", "fedavg")
    classify = results.predictor("multirun/mine/seed=0,strategy=fedavg")

The frame has a row per measurement. Its columns are each setting under its own name (``strategy``,
``client.optimizer.lr``), ``setting`` (its name in tables), ``seed``, ``run`` (the folder) and ``status``
(``finished``, ``diverged`` or another). The others are those of metrics.csv, with ``node``: ``round``,
``split``, ``model``, ``node``, ``metric``, ``value``.
"""

import os
import warnings
from numbers import Real
from pathlib import Path

import numpy as np
import pandas as pd
from torch import nn

from .engine.metrics import is_lower_better
from .engine.predictor import Predictor, predictor_of
from .engine.saved_model import load_model
from .errors import UserError
from .reports.runs import MEASURED, column, divergences, finished, node_of, over_nodes, remarks, tidy
from .reports.statistics import pair_settings

RUN = ["setting", "seed"]


def load(*folders: str | os.PathLike[str]) -> pd.DataFrame:
    """Return all measurements of the runs at or below ``folders``, tidy.

    ``node`` is the partition that a row is about; missing if it is about all nodes. Unreadable runs are
    left out, as are those of older versions that hide a divergence; unfinished ones count up to their last
    round. Of several runs with the same setting and seed, the last started counts, finished ones first.
    Each of these is a ``UserWarning``, and so are diverged runs, and package versions that differ within a
    setting.

    Raises
    ------
    UserError : when there is no run to read
    """
    frame, left_out = tidy(map(Path, folders))
    for line in (*divergences(frame), *remarks(map(Path, frame.run.unique()), left_out)):
        warnings.warn(line, stacklevel=2)
    return frame


def settings(frame: pd.DataFrame) -> list[str]:
    """Return the names of the columns that hold settings."""
    return [str(name) for name in frame if name not in MEASURED]


def has(frame: pd.DataFrame, metric: str, split: str = "test") -> bool:
    """Say whether any run has measured a metric."""
    return bool(((frame.split == split) & (frame.metric == metric)).any())


def by_round(frame: pd.DataFrame, metric: str = "accuracy", split: str = "test") -> pd.DataFrame:
    """Return a metric of each run by round: the settings, ``setting``, ``seed``, ``round``, ``value``.

    With several models, it is the mean over the nodes, each with its own.

    Raises
    ------
    UserError : for a metric that no run has measured on this split
    """
    if not has(frame, metric, split):
        known = ", ".join(sorted(frame[frame.split == split].metric.unique())) or "nothing"
        raise UserError(f"no run has measured {split}/{metric}; on {split} they have {known}")
    chosen = frame[(frame.split == split) & (frame.metric == metric)]
    of_a_node = node_of(chosen.model).notna()
    has_mean = (~of_a_node).groupby([chosen[key] for key in (*RUN, "round")]).transform("any")
    chosen = chosen[~(of_a_node & has_mean)]  # drop single nodes where their mean is known
    values = over_nodes(chosen, [*RUN, "round"]).rename("value").reset_index()
    labels = frame[[*settings(frame), *RUN]].drop_duplicates(RUN)
    return labels.merge(values, on=RUN)


def last(frame: pd.DataFrame, metric: str = "accuracy", split: str = "test") -> pd.DataFrame:
    """Return a row for each run: the metric's value in the last round that has one."""
    return by_round(frame, metric, split).groupby(RUN, sort=False).tail(1).reset_index(drop=True)


def best(
    frame: pd.DataFrame, metric: str = "accuracy", split: str = "test", lower: bool | None = None
) -> pd.DataFrame:
    """Return a row for each run: its best round, NaN if none has a number.

    ``lower`` as in :func:`rounds_to`.
    """
    rows = by_round(frame, metric, split)
    merit = (-rows.value if _chosen(metric, lower) else rows.value).fillna(-np.inf)
    return rows.loc[merit.groupby([rows[key] for key in RUN]).idxmax()].reset_index(drop=True)


def rounds_to(
    frame: pd.DataFrame,
    metric: str = "accuracy",
    target: float = 0.9,
    split: str = "test",
    lower: bool | None = None,
) -> pd.DataFrame:
    """Return a row for each run; ``value`` is the first round that reaches ``target``, NaN if none does.

    ``lower`` says whether less is better; None: by the metric's name (loss, error, mae, mse, nll, entropy,
    perplexity, variance, bytes or seconds). Only evaluated rounds count.

    Raises
    ------
    ValueError : for a target that is not a number
    """
    if not isinstance(target, Real):
        raise ValueError(f"target={target!r}: expected a number, as of {split}/{metric}")
    rows = by_round(frame, metric, split)
    reached = rows.value <= target if _chosen(metric, lower) else rows.value >= target
    first = rows[reached].groupby(RUN)["round"].min().rename("value").astype(float)
    runs = rows.drop(columns=["round", "value"]).drop_duplicates(RUN)
    return runs.merge(first.reset_index(), on=RUN, how="left")


def paired(
    frame: pd.DataFrame,
    setting: str,
    baseline: object,
    metric: str = "accuracy",
    split: str = "test",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Return how each setting differs from the one whose ``setting`` is ``baseline``, seed by seed.

    With ``setting="setting"``, the baseline is one line of a table, given by its label, and all others are
    compared with it.

    Each row has the number of common ``seeds``, the ``baseline``, the ``mean`` difference of the last
    values with its confidence interval ``low`` to ``high``, the ``p`` value of the paired t-test
    (scipy.stats.ttest_rel), and ``p_holm``, after Holm's correction for all rows. With one seed, or
    equal differences, there is no interval. If a run has diverged, the mean is NaN as well; unfinished runs
    are in no pair. If several settings have that value (a sweep of a second option), each setting is paired
    with the one that agrees in the options in which these differ. Each unpaired setting, even a baseline,
    is a ``UserWarning``.

    Raises
    ------
    UserError : when no run has the baseline, or none shares a seed with it
    """
    rows = last(finished(frame), metric, split)
    name = setting if setting == "setting" else column(setting)
    is_base = rows.get(name, pd.Series(dtype=object)).map(lambda value: _is(value, baseline)).astype(bool)
    if not is_base.any():
        values = ", ".join(sorted(rows[name].astype(str).unique())) if name in rows else "none"
        raise UserError(f"no run has {setting}={baseline} and {metric}: expected one of {values}")
    keys = [key for key in settings(frame) if key != name]
    pairs, alone = pair_settings(rows, is_base, keys, confidence)
    missing = dict.fromkeys(frame.setting[~frame.setting.isin(rows.setting)].astype(str))
    alone |= dict.fromkeys(missing, f"none of its runs has finished with {metric}")
    texts = [f"{label} ({why})" for label, why in alone.items()]
    if not pairs:
        why = "; ".join(texts) or "there is no other setting"
        raise UserError(f"nothing to pair with {setting}={baseline}: {why}")
    for line in texts:
        warnings.warn(f"in no pair: {line}", stacklevel=2)
    return pd.DataFrame(pairs)


def model(run: str | os.PathLike[str], name: str | None = None) -> nn.Module:
    """Return the trained network of a run with ``save=last``, ``save=best`` or ``checkpoint_every``.

    It is the bare network: it takes normalised inputs and returns logits. For a site's raw rows, see
    :func:`predictor`. ``name`` chooses among several models, by the names in metrics.csv.

    Raises
    ------
    UserError : when the run kept no model, or another number of them
    """
    return load_model(Path(run), name).network


def predictor(run: str | os.PathLike[str], name: str | None = None) -> Predictor:
    """Return the trained model of a run with its preprocessing: call it with a site's raw rows.

        classify = results.predictor("outputs/first")
        classify(pandas.read_csv("new.csv")).classes

    It takes a DataFrame with the schema's columns, a numpy array or a torch tensor, and returns the class
    of each row and the probability of each class (:class:`~baselines.engine.predictor.Prediction`).
    ``name`` as in :func:`model`.

    Raises
    ------
    UserError : when the run kept no model, or several and ``name`` is missing, or is not for classification
    """
    return predictor_of(Path(run), name)


def _is(value: object, expected: object) -> bool:
    """Say whether a setting has a value; 1, 1.0 and "1" are the same number."""
    if str(value) == str(expected):
        return True
    try:
        return not isinstance(value, bool) and float(str(value)) == float(str(expected))
    except ValueError:
        return False


def _chosen(metric: str, lower: bool | None) -> bool:
    return is_lower_better(metric) if lower is None else lower
