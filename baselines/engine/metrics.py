"""The column names of metrics.csv, and statistics over sites."""

import csv
from collections.abc import Mapping
from math import isfinite, nan
from pathlib import Path
from statistics import fmean, median

from baselines.errors import UserError

COLUMNS = ("round", "split", "model", "metric", "value")
OWN_GROUP = "own group"  # the "model" of a mean over the nodes, each with the model of its group
# words in the name of a metric of which less is better, and in that of an exception
LOWER = ("loss", "error", "mae", "mse", "nll", "entropy", "perplexity", "variance", "bytes", "seconds")
HIGHER = ("explained_variance",)
EVALUATIONS = ("test", "validation", "node-test")  # the splits of what models are evaluated on
NODE = r"^node ?(\d+)$"  # the "model" of a row that is one node's, by its partition
GLOBAL = "global"  # the "model" of what is of all nodes
SITES = "site-test"  # the "split" of what each node measures on its own test data
BY_NODE = "site-train"  # the "split" of what is each node's of a round of training


def spread(per_site_metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the lowest, the highest and the median of each metric over the sites that sent it.

    NaN where one of them is no number: it has no place among the others, and would hide.
    """
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for metrics in per_site_metrics.values() for name in metrics):
        values = [metrics[name] for metrics in per_site_metrics.values() if name in metrics]
        if not all(map(isfinite, values)):
            values = [nan]
        parts = {"lowest": min(values), "median": median(values), "highest": max(values)}
        found |= {f"{name}_{part}": float(value) for part, value in parts.items()}
    return found


def less_is_better(metric: str) -> bool:
    """Say in which direction a metric is good, by its name."""
    return any(word in metric for word in LOWER) and not any(word in metric for word in HIGHER)


# The objective: what a sweeper looks for the best of.


def objective(folder: Path, name: str, server_round: int | None = None) -> float | None:
    """Return ``split/metric`` of a round (None: the last), a mean over the nodes; None without any.

    Raises
    ------
    UserError : when metrics.csv is damaged
    """
    found = by_round(folder, name)
    return found.get(max(found) if server_round is None else server_round) if found else None


def by_round(folder: Path, name: str) -> dict[int, float]:
    """Return ``split/metric`` of each round that has it, averaged over the nodes.

    Raises
    ------
    UserError : when metrics.csv is damaged
    """
    split, _, metric = name.partition("/")
    rows: dict[int, dict[str, float]] = {}
    try:
        with open(folder / "metrics.csv", newline="") as file:
            for row in csv.DictReader(file):
                if (row["split"], row["metric"]) == (split, metric):
                    rows.setdefault(int(row["round"]), {})[row["model"]] = float(row["value"])
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise UserError(f"{folder}/metrics.csv is damaged: start again with resume=false") from error
    return {number: models.get(OWN_GROUP, fmean(models.values())) for number, models in rows.items()}
