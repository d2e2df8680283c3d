"""Runs of the real program, and what its own clock says."""

import contextlib
import csv
import io
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from baselines.experiment import experiment
from baselines.experiment.preflight import check


@dataclass(frozen=True)
class Timed:
    """The times of one run.

    Parameters
    ----------
    rounds : seconds of each round (choosing nodes, training, aggregating), as metrics.csv has them
    wall : seconds of the whole run: also start-up, evaluation, writing, showing, drawing
    """

    rounds: list[float]
    wall: float

    @property
    def round(self) -> float:
        """Seconds of a round: the median of all but the first, which belongs to the start-up."""
        return median(self.rounds[1:])


def run(overrides: str) -> Timed:
    """Run an experiment on its runtime as ``baselines.run`` does, its progress not shown."""
    this = experiment.load(overrides)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        started = time.perf_counter()
        check(this)
        this.runtime().run(overrides, this.settings.num_nodes, Path(folder))
        return Timed(rounds_in(Path(folder)), time.perf_counter() - started)


def rounds_in(folder: Path) -> list[float]:
    """Return the seconds of each round of the run that wrote ``folder``."""
    with open(folder / "metrics.csv", newline="") as file:
        return [float(row["value"]) for row in csv.DictReader(file) if row["metric"] == "seconds"]


def with_rounds(setting: str, rounds: int) -> str:
    """Return the overrides of a setting for so many rounds, evaluated only before and after all of them."""
    return f"{setting} rounds={rounds} evaluate_every={rounds}"
