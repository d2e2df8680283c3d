"""Divergence: has a run's model no finite evaluation in the end, and since when?

What has been measured is read from metrics.csv, so that a resumed run, and one of before, tell the same.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from baselines.errors import RunDiverged, UserError
from baselines.experiment.experiment import Experiment
from strategies.shared.divergence import has_diverged

from .metrics import COLUMNS, EVALUATIONS, OWN_GROUP

Row = tuple[int, str, str, str, float]  # as COLUMNS
HAS_DIVERGED = "the run has diverged:"  # begins the line, also in the log of a deployment
RATES = ("client.optimizer.lr", "step_size.eta")
NEUTRAL = "1.0"  # of a step size that leaves the step as it is


@dataclass(frozen=True)
class Divergence:
    """Since which round a run's evaluations are not finite, and of which split they are."""

    server_round: int
    split: str


def check(experiment: Experiment, folder: Path) -> None:
    """Raise ``RunDiverged`` where the run's last evaluation is not finite, in one line with a remedy.

    Raises
    ------
    RunDiverged : so
    UserError : when metrics.csv is damaged
    """
    if (divergence := divergence_of(_rows(folder))) is None:
        return
    settings = experiment.flat_configuration()
    rates = [f"{name}={settings[name]}" for name in RATES if settings.get(name, NEUTRAL) != NEUTRAL]
    remedy = f"lower {' or '.join(rates) or 'it'}"
    raise RunDiverged(
        f"{HAS_DIVERGED} its {divergence.split} evaluation is not finite from round "
        f"{divergence.server_round} on; the likely cause is a learning rate: {remedy}"
    )


def divergence_of(rows: Iterable[Row]) -> Divergence | None:
    """Return since when the evaluations in rows of metrics.csv are not finite; None where the last are."""
    found = []
    for split, rounds in diverged_rounds(rows).items():
        since = None
        for server_round, diverged in sorted(rounds.items()):
            since = (server_round if since is None else since) if diverged else None
        if since is not None:
            found.append(Divergence(since, split))
    return min(found, key=lambda one: one.server_round, default=None)


def diverged_rounds(rows: Iterable[Row]) -> dict[str, dict[int, bool]]:
    """Return by split whether each round's evaluation is not finite, of several models their mean."""
    measured: dict[str, dict[int, dict[str, dict[str, float]]]] = {}
    for server_round, split, model, metric, value in rows:
        if split in EVALUATIONS:
            models = measured.setdefault(split, {}).setdefault(server_round, {})
            models.setdefault(model, {})[metric] = value
    return {
        split: {server_round: _any_diverged(models) for server_round, models in rounds.items()}
        for split, rounds in measured.items()
    }


def diverged_rounds_in(folder: Path, split: str) -> set[int]:
    """Return the rounds of a run whose evaluation is not finite.

    Raises
    ------
    UserError : when metrics.csv is damaged
    """
    rounds = diverged_rounds(_rows(folder)).get(split, {})
    return {server_round for server_round, diverged in rounds.items() if diverged}


def _any_diverged(models: dict[str, dict[str, float]]) -> bool:
    mean = models.get(OWN_GROUP)
    return any(map(has_diverged, models.values() if mean is None else [mean]))


def _rows(folder: Path) -> Iterable[Row]:
    """Yield the rows of a run's evaluations; none where nothing has been written."""
    try:
        with open(folder / "metrics.csv", newline="") as file:
            for row in csv.DictReader(file):
                server_round, split, model, metric, value = (row[name] for name in COLUMNS)
                if split in EVALUATIONS:
                    yield int(server_round), split, model, metric, float(value)
    except FileNotFoundError:
        return
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise UserError(f"{folder}/metrics.csv is damaged: start again with resume=false") from error
