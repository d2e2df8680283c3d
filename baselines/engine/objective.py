"""The objective: what a sweeper looks for the best of."""

import csv
from pathlib import Path
from statistics import fmean

from baselines.errors import UserError

from .metrics import OWN_GROUP


def objective(folder: Path, name: str) -> float | None:
    """Return ``split/metric`` of a run's last round, averaged over the nodes; None where there is none.

    Raises
    ------
    UserError : when metrics.csv is damaged
    """
    split, _, metric = name.partition("/")
    by_round: dict[int, dict[str, float]] = {}
    try:
        with open(folder / "metrics.csv", newline="") as file:
            for row in csv.DictReader(file):
                if (row["split"], row["metric"]) == (split, metric):
                    by_round.setdefault(int(row["round"]), {})[row["model"]] = float(row["value"])
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise UserError(f"{folder}/metrics.csv is damaged: start again with resume=false") from error
    last = by_round[max(by_round)] if by_round else {}
    return last.get(OWN_GROUP, fmean(last.values())) if last else None
