"""The names in metrics.csv, and what is written of several sites."""

from collections.abc import Mapping
from math import isfinite, nan
from statistics import median

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


def spread(at_sites: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the lowest, the highest and the median of each metric over the sites that sent it.

    NaN where one of them is no number: it has no place among the others, and would hide.
    """
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for metrics in at_sites.values() for name in metrics):
        values = [metrics[name] for metrics in at_sites.values() if name in metrics]
        if not all(map(isfinite, values)):
            values = [nan]
        parts = {"lowest": min(values), "median": median(values), "highest": max(values)}
        found |= {f"{name}_{part}": float(value) for part, value in parts.items()}
    return found


def less_is_better(metric: str) -> bool:
    """Say in which direction a metric is good, by its name."""
    return any(word in metric for word in LOWER) and not any(word in metric for word in HIGHER)
