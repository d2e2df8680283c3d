"""The objective: what a sweeper looks for the best of."""

import csv
from pathlib import Path
from statistics import fmean

from baselines.errors import UserError

from .metrics import OWN_GROUP


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
