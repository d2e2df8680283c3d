"""How low does a loss curve run, and how smooth is it?

The FedExP report sees a trade-off "between having a much smoother curve and still having low loss" (figure
4). The last value says neither: where the extrapolated iteration is chaotic, it is one draw out of many.
Both numbers leave out the first rounds, in which all windows average the same few iterates.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from baselines.errors import UserError

FIRST = 20  # round: the longest window is full


def mean_log10_loss(folder: Path) -> float:
    """Return the mean over rounds of log10 of the test loss; less is better."""
    return float(_log_loss(folder).mean())


def roughness(folder: Path) -> float:
    """Return the standard deviation of how much log10 of the test loss changes in a round; 0 is smooth."""
    return float(np.std(np.diff(_log_loss(folder))))


def _log_loss(folder: Path) -> np.ndarray:
    rows = pd.read_csv(folder / "metrics.csv")
    chosen = rows[(rows.split == "test") & (rows.metric == "loss") & (rows["round"] >= FIRST)]
    if len(chosen) < 2:
        raise UserError(f"{folder} has no test loss from round {FIRST} on: run it for more rounds")
    return np.log10(chosen.sort_values("round").value.to_numpy(float))
