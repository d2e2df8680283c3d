"""Numbers measured on a run or a curve, beside its metrics: ``measure`` in ``tables.yaml``."""

from pathlib import Path

import numpy as np
import pandas as pd

from baselines.errors import UserError
from baselines.reports.runs import by_round, read_measurements

# How far is test accuracy behind training accuracy? FedER's figures 4.1 to 4.15.
#
# The thesis reads this gap off its curves. Training accuracy is a mean over a round's steps, on augmented
# examples, and over the nodes. A model that still learns exceeds it, so the gap may be below 0.


def accuracy_gap(folder: Path) -> float:
    """Return training less test accuracy after a run's last round, in [-1, 1].

    Raises
    ------
    UserError : when the run has not measured both
    """
    train, test = (by_round(folder, split, "accuracy") for split in ("train", "test"))
    return float(train.iloc[-1] - test.iloc[-1])


# How low is a loss curve, and how smooth?
#
# The FedExP report sees a trade-off "between having a much smoother curve and still having low loss"
# (figure 4). The last value shows neither: where the extrapolated iteration is chaotic, it is one random
# draw. Both numbers leave out the first rounds, in which all windows average the same few iterates.


FIRST = 20  # the round in which the longest window is full


def mean_log10_loss(folder: Path) -> float:
    """Return the mean over rounds of log10 of the test loss; less is better."""
    return float(_log_loss(folder).mean())


def roughness(folder: Path) -> float:
    """Return the standard deviation of the change per round in log10 of the test loss; 0 is smooth."""
    return float(np.std(np.diff(_log_loss(folder))))


def _log_loss(folder: Path) -> np.ndarray:
    rows = pd.read_csv(folder / "metrics.csv")
    chosen = rows[(rows.split == "test") & (rows.metric == "loss") & (rows["round"] >= FIRST)]
    if len(chosen) < 2:
        raise UserError(f"{folder} has no test loss from round {FIRST} on: run it for more rounds")
    return np.log10(chosen.sort_values("round").value.to_numpy(float))


# For how long do other nodes count? The Weight Erosion report chooses p_d by this (section IV.C).
# A weight of zero stays zero; once all others are, the requester learns only from its own data.


def rounds_with_others(folder: Path) -> int:
    """Return in how many rounds a node beside the requester has a weight above zero.

    Raises
    ------
    UserError : when the run has no weights of nodes, or metrics.csv is damaged
    """
    rows = read_measurements(folder)
    weights = rows[(rows.split == "train") & rows.metric.str.startswith("weight_")]
    if weights.empty:
        raise UserError(f"{folder} has no weights of nodes: run it with strategy=weight_erosion")
    nodes_that_count = (weights.value > 0).groupby(weights["round"]).sum()
    return int((nodes_that_count > 1).sum())


# Numbers of a curve besides its last value. Each takes a table's curve by round, thinned as in the table, and
# in its unit.


INITIAL = 10  # rounds
CLOSE = 0.5  # distance from the best in the curve's unit: half a percentage point


def initial_mean(curve: "pd.Series[float]") -> float:
    """Return the mean over the first ten rounds, without round 0."""
    return float(curve[(curve.index > 0) & (curve.index <= INITIAL)].mean())


def rounds_to_best(curve: "pd.Series[float]") -> int:
    """Return the first round that is within half a point of the best."""
    return int(curve.index[curve >= curve.max() - CLOSE][0])


def step_spread(curve: "pd.Series[float]") -> float:
    """Return the standard deviation of the change from one round to the next, from round 20 on."""
    return float(np.std(np.diff(curve[curve.index >= FIRST])))


def log10_step_spread(curve: "pd.Series[float]") -> float:
    """Return :func:`step_spread` of log10 of a loss, its roughness on a logarithmic axis."""
    return step_spread(curve.apply(np.log10))


def late_log10_step_spread(curve: "pd.Series[float]") -> float:
    """Return :func:`log10_step_spread` of the last quarter of the rounds, after learning."""
    return log10_step_spread(curve.tail(len(curve) // 4))


def last_log10_loss(folder: Path) -> float:
    """Return log10 of the last test loss: its differences are ratios of losses."""
    return float(_log_loss(folder)[-1])
