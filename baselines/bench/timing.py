"""Contenders that take turns, and the medians and ratios of what they measured."""

import contextlib
import csv
import io
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.experiment.preflight import check

Measured = TypeVar("Measured")
Contenders = dict[str, Callable[[], float]]  # {name: a measurement}
Samples = dict[str, list[float]]  # {contender: a measurement per turn}


@dataclass(frozen=True)
class Spread:
    """The median of several measurements, the least and the greatest of them."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of one or more measurements."""
        return cls(median(values), min(values), max(values), len(values))


def alternate(contenders: Mapping[str, Callable[[], Measured]], repeats: int) -> dict[str, list[Measured]]:
    """Let each contender measure once, in turn, ``repeats`` times; return {name: measurements}."""
    found: dict[str, list[Measured]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, measure in contenders.items():
            found[name].append(measure())
    return found


def round_seconds(one_round: Callable[[], object], rounds: int) -> float:
    """Return the seconds of a round: the median of all but the first."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        one_round()
        seconds.append(time.perf_counter() - started)
    return median(seconds[1:])


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the spread of the ratios, turn by turn: each turn's two sides were measured together."""
    return Spread.of([mine / other for mine, other in zip(ours, theirs, strict=True)])


# Resident memory of a process, from Linux's /proc.
#
# ``resource.getrusage`` would not do: a process inherits the peak of the one that started it.


def resident(process: int | str = "self") -> int:
    """Return the bytes that a process has in memory now."""
    return _bytes(process, "VmRSS")


def peak(process: int | str = "self") -> int:
    """Return the most bytes that a process ever had in memory."""
    return _bytes(process, "VmHWM")


def _bytes(process: int | str, key: str) -> int:
    status = Path(f"/proc/{process}/status")
    if not status.exists():
        raise UserError(f"memory is read from {status}: run this workload on Linux")
    lines = (line.split() for line in status.read_text().splitlines())
    return next(int(words[1]) * 1024 for words in lines if words[0] == f"{key}:")


# Runs of the real program, and what its own clock says.


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


def run_experiment(overrides: str) -> Timed:
    """Run an experiment on its runtime as ``baselines.run`` does, its progress not shown."""
    this = experiment.load(overrides)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        started = time.perf_counter()
        check(this)
        this.runtime().run(overrides, this.settings.num_nodes, Path(folder))
        return Timed(read_round_seconds(Path(folder)), time.perf_counter() - started)


def read_round_seconds(folder: Path) -> list[float]:
    """Return the seconds of each round of the run that wrote ``folder``."""
    with open(folder / "metrics.csv", newline="") as file:
        return [float(row["value"]) for row in csv.DictReader(file) if row["metric"] == "seconds"]


def with_rounds(setting: str, rounds: int) -> str:
    """Return the overrides of a setting for so many rounds, evaluated only before and after all of them."""
    return f"{setting} rounds={rounds} evaluate_every={rounds}"
