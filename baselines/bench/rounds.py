"""Measure rounds of the real program, beside its limits and peers, and on growing populations."""

import contextlib
import csv
import io
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from baselines.experiment.experiment import load
from baselines.experiment.overrides import ROOT
from baselines.experiment.preflight import check

from . import by_hand, peers
from .report import Contenders, Row, Spread, Workload, alternate, compared, peak, ratio

PEER_ROUNDS = 20  # per measurement, at most


@dataclass(frozen=True)
class Way:
    """One way to compute a round, and the goals for it.

    Parameters
    ----------
    overrides : those that choose it
    limit : the name of its limit
    at_most : the goal as a multiple of the limit
    seconds : the goal in seconds
    flower : the goal as a multiple of Flower's own simulation
    """

    overrides: str
    limit: str
    at_most: float | None = None
    seconds: float | None = None
    flower: float | None = None


@dataclass(frozen=True)
class RoundTime(Workload):
    """Seconds of a round, in several ways, beside limits and other frameworks.

    Parameters
    ----------
    setting : the overrides
    ways : {subject: a way}
    limits : {name: the same rounds by hand}
    rounds : of a measurement; the first is not counted
    client_of : makes a client for the peers
    """

    setting: str
    ways: Mapping[str, Way]
    limits: Mapping[str, by_hand.Limit] = field(default_factory=dict)
    rounds: int = 3
    client_of: by_hand.ClientOf = by_hand.Client.of

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure each way beside its limit and the peers."""
        others = self._peers(peers)
        ours: Contenders = {
            subject: partial(measure_round, with_rounds(f"{self.setting} {way.overrides}", self.rounds))
            for subject, way in self.ways.items()
        }
        with contextlib.ExitStack() as stack:
            limits: Contenders = {
                name: stack.enter_context(limit(self.setting, self.rounds))
                for name, limit in self.limits.items()
            }
            samples = alternate({**ours, **limits, **others}, repeats)
        alone = [
            Row(self.name, subject, "round", "s", Spread.of(samples[subject]), at_most=way.seconds)
            for subject, way in self.ways.items()
            if way.seconds is not None
        ]
        goals = {subject: self._goals(way, others) for subject, way in self.ways.items()}
        return [*alone, *compared(self.name, "round", "s", samples, goals)]

    def _peers(self, is_requested: bool) -> Contenders:
        known = peers.all_peers(self.setting, self.client_of, min(self.rounds, PEER_ROUNDS))
        return peers.list_present_peers(self.name, known, is_requested)

    def _goals(self, way: Way, others: Contenders) -> dict[str, float | None]:
        return {
            way.limit: way.at_most,
            **{name: way.flower if name == peers.FLOWER else None for name in others},
        }


def measure_round(overrides: str) -> float:
    """Return the seconds of a round as ``baselines.run`` computes it, the median of all but the first."""
    experiment = load(overrides)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        check(experiment)
        experiment.runtime().run(overrides, experiment.settings.num_nodes, Path(folder))
        return read_round_seconds(Path(folder))


def read_round_seconds(folder: Path) -> float:
    """Return the seconds of a round of the run that wrote ``folder``: the median of all but the first."""
    with open(folder / "metrics.csv", newline="") as file:
        return median(
            [float(row["value"]) for row in csv.DictReader(file) if row["metric"] == "seconds"][1:]
        )


def with_rounds(setting: str, rounds: int) -> str:
    """Return the overrides of a setting for ``rounds`` rounds, evaluated only before and after all of them."""
    return f"{setting} rounds={rounds} evaluate_every={rounds}"


# growth: the cost of a round, the start and memory, for trivial clients on growing populations.
#
# Clients with one example in ten dimensions and one step are trivial, so only the program's cost is left.

START_UP = 5.0  # seconds
INDEPENDENT = 1.1  # goal: multiple of a round with as many sampled nodes of a smaller population


@dataclass(frozen=True)
class Cost:
    """The cost of one run: seconds of a round and of the start-up, peak bytes."""

    round: float
    start: float
    peak: int


@dataclass(frozen=True)
class Growth(Workload):
    """Seconds of a round and of the start-up, peak bytes; each run a ``python -m baselines.run``.

    The start-up lasts from the command until the first round is shown, less a round.

    Parameters
    ----------
    populations : numbers of nodes, ascending
    sampled : how many of them train in a round; all if there are fewer
    rounds : of a measurement; the first is not counted
    """

    populations: tuple[int, ...] = (10, 100, 1000, 10000)
    sampled: int = 100
    rounds: int = 12

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure each population in turn."""
        costs = alternate({str(n): partial(self._run, n) for n in self.populations}, repeats)
        rows = []
        for before, population in zip((None, *self.populations), self.populations, strict=False):
            rows += self._rows(before, population, costs)
        return rows

    def _rows(self, before: int | None, population: int, costs: Mapping[str, list[Cost]]) -> list[Row]:
        """Return a population's rows, its round compared with the previous population's."""
        own, subject = costs[str(population)], self._subject(population)
        rounds = [cost.round for cost in own]
        row = Row(self.name, subject, "round", "s", Spread.of(rounds))
        if before is not None:
            growth = self._num_sampled(population) / self._num_sampled(before)  # linear in what is sampled
            quotient, goal = ratio(rounds, [c.round for c in costs[str(before)]]), max(growth, INDEPENDENT)
            row = Row(self.name, subject, "round", "s", row.value, self._subject(before), quotient, goal)
        start, memory = Spread.of([cost.start for cost in own]), Spread.of([cost.peak for cost in own])
        return [
            row,
            Row(self.name, subject, "start-up", "s", start, at_most=START_UP),
            Row(self.name, subject, "peak memory", "B", memory),
        ]

    def _num_sampled(self, population: int) -> int:
        return min(population, self.sampled)

    def _subject(self, population: int) -> str:
        return f"{population:,} nodes, {self._num_sampled(population)} sampled"

    def _run(self, population: int) -> Cost:
        overrides = with_rounds(
            f"experiment=fedexp/synthetic dataset.load.dimension=10 dataset.load.rows=1 "
            f"dataset.load.num_nodes={population} num_nodes={population} client.local_steps=1 "
            f"nodes_per_round={self._num_sampled(population)}",
            self.rounds,
        )
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "baselines.run",
                *shlex.split(overrides),
                f"hydra.run.dir={folder}",
            ]
            environment = os.environ | {"PYTHONUNBUFFERED": "1"}
            started = time.perf_counter()
            with subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
            ) as run:
                assert run.stdout is not None
                for line in run.stdout:
                    if line.startswith("round 1/"):
                        first = time.perf_counter() - started
                    if line.startswith(f"round {self.rounds}/"):  # the process still has to draw figures
                        memory = peak(run.pid)
            if run.returncode:
                raise RuntimeError(f"{shlex.join(command)} ended with {run.returncode}")
            seconds = read_round_seconds(Path(folder))
        return Cost(seconds, first - seconds, memory)
