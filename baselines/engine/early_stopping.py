"""Early stopping: a run ends once its best round is so many rounds ago.

What has been measured is read from metrics.csv, so that a resumed run stops where the whole one does. (One
of fewer rounds that goes on has its last round measured too, whatever ``evaluate_every``.)
"""

from math import isfinite
from pathlib import Path
from typing import Any

from baselines.errors import UserError
from baselines.experiment.settings import EarlyStopping

from .divergence import diverged_rounds_in
from .metrics import less_is_better
from .objective import by_round


def best_round(folder: Path, name: str) -> int | None:
    """Return the first round with the best ``split/metric``, a mean over the nodes; None without any.

    A round whose evaluation is not finite is never the best.
    """
    diverged = diverged_rounds_in(folder, name.partition("/")[0])
    measured = by_round(folder, name).items()
    values = {number: value for number, value in measured if isfinite(value) and number not in diverged}
    if not values:
        return None
    sign = 1 if less_is_better(name) else -1
    return min(values, key=lambda number: (sign * values[number], number))


def is_over(folder: Path, told: EarlyStopping, server_round: int) -> bool:
    """Say whether the run has waited long enough for a better round; the model before training is one.

    Raises
    ------
    UserError : when nothing of that name has been measured in all this time
    """
    if told.patience is None:
        return False
    waited = server_round - (best_round(folder, told.metric) or 0)
    if waited >= told.patience and not by_round(folder, told.metric):
        raise UserError(f"early_stopping.metric={told.metric} was never measured: see {folder}/metrics.csv")
    return waited >= told.patience


def reached(folder: Path, told: EarlyStopping) -> dict[str, Any]:
    """Return what environment.json says of it."""
    if told.patience is None:
        return {}
    return {"best_round": best_round(folder, told.metric)}
