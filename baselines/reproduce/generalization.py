"""How far is a model behind on the test set from what it reached in training? FedER's figures 4.1 to 4.15.

The thesis reads this gap off its curves. Training accuracy is the mean over a round's steps, on augmented
examples, and over the nodes: a model that still learns is ahead of it, and the gap may be below 0.
"""

from pathlib import Path

import pandas as pd

from baselines.errors import UserError
from baselines.reports.measurements import over_nodes


def accuracy_gap(folder: Path) -> float:
    """Return training less test accuracy after a run's last round, in [-1, 1].

    Raises
    ------
    UserError : when the run has not measured both
    """
    rows = pd.read_csv(folder / "metrics.csv")
    found = {}
    for split in ("train", "test"):
        measured = rows[(rows.split == split) & (rows.metric == "accuracy")]
        if measured.empty:
            raise UserError(f"{folder} has no accuracy on the {split} set: the gap needs both")
        found[split] = float(over_nodes(measured, ["round"]).iloc[-1])
    return found["train"] - found["test"]
