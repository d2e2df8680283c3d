"""How far is a model behind on the test set from what it reached in training? FedER's figures 4.1 to 4.15.

The thesis reads this gap off its curves. Training accuracy is the mean over a round's steps, on augmented
examples, and over the nodes: a model that still learns is ahead of it, and the gap may be below 0.
"""

from pathlib import Path

from baselines.reports.measurements import by_round


def accuracy_gap(folder: Path) -> float:
    """Return training less test accuracy after a run's last round, in [-1, 1].

    Raises
    ------
    UserError : when the run has not measured both
    """
    train, test = (by_round(folder, split, "accuracy") for split in ("train", "test"))
    return float(train.iloc[-1] - test.iloc[-1])
