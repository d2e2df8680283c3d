"""Shown: which metrics a table or a figure has, and what they are called there."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from baselines.errors import UserError


@dataclass(frozen=True)
class Shown:
    """A metric of a split."""

    split: str
    metric: str

    @property
    def title(self) -> str:
        """What an axis says."""
        if (self.split, self.metric) == ("train", "step_size"):
            return "server step size"
        return f"{self.split} {self.metric}".replace("_", " ").replace("node-test", "node test")

    @property
    def percent(self) -> bool:
        """Whether it is a share, printed in percent."""
        return self.metric in ("accuracy", "accuracy_worst", "accuracy_worst_tenth")


def choose(frame: pd.DataFrame, asked: tuple[str, ...] = (), step_size: bool = False) -> list[Shown]:
    """Return what is asked for, as ``metric`` (of the test set) or ``split/metric``.

    Each comes once. Without a wish, everything measured on the test set, accuracy and loss first; without
    a test set, the accuracy on the nodes' own test data, else the loss there. With ``step_size`` also the
    server's, where it has ever changed.

    Raises
    ------
    UserError : for a metric that no run has
    """
    there = list(frame[["split", "metric"]].drop_duplicates().itertuples(index=False, name=None))
    if asked:
        return list(dict.fromkeys(_found(name, there) for name in asked))
    tested = [metric for split, metric in there if split == "test"]
    first = [metric for metric in ("accuracy", "loss") if metric in tested]
    shown = [Shown("test", metric) for metric in [*first, *(m for m in tested if m not in first)]]
    if not shown:
        on_nodes = [Shown("node-test", metric) for metric in ("accuracy", "loss")]
        shown = [one for one in on_nodes if (one.split, one.metric) in there][:1]
    steps = frame[(frame.split == "train") & (frame.metric == "step_size")].value
    if (
        step_size
        and len(steps)
        and not np.allclose(steps, steps.iloc[0], rtol=1e-9, atol=0, equal_nan=True)
    ):
        shown.append(Shown("train", "step_size"))
    return shown


def _found(name: str, there: list[tuple[str, str]]) -> Shown:
    split, _, metric = name.rpartition("/")
    wanted = (split or "test", metric)
    if wanted in there:
        return Shown(*wanted)
    names = ", ".join(sorted(own if part == "test" else f"{part}/{own}" for part, own in there))
    raise UserError(f"--metric {name}: no run has measured it; expected one of {names}")
