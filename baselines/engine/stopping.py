"""Stop a run that has diverged, or has not improved for ``patience`` rounds."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from baselines.errors import RunDiverged, UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.settings import EarlyStopping
from strategies.shared.checks import has_diverged

from .metrics import COLUMNS, EVALUATIONS, OWN_GROUP, by_round, less_is_better

Row = tuple[int, str, str, str, float]  # as COLUMNS
HAS_DIVERGED = "the run has diverged:"  # begins the line, also in the log of a deployment
RATES = ("client.optimizer.lr", "step_size.eta")
NEUTRAL = "1.0"  # of a step size that leaves the step as it is


@dataclass(frozen=True)
class Divergence:
    """Since which round a run's evaluations are not finite, and of which split they are."""

    server_round: int
    split: str


def check_divergence(experiment: Experiment, folder: Path) -> None:
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


def should_stop(folder: Path, told: EarlyStopping, server_round: int) -> bool:
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


def describe_stop(folder: Path, told: EarlyStopping) -> dict[str, Any]:
    """Return what environment.json says of it."""
    if told.patience is None:
        return {}
    return {"best_round": best_round(folder, told.metric)}
