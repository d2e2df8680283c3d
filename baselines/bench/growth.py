"""growth: trivial clients on ever larger populations; what a round, the start and the memory cost.

One example in ten dimensions and one step make a client trivial: what is left is the program. Each run is
a ``python -m baselines.run`` of its own; its start-up lasts from the command until the first round is
shown, less a round.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from baselines.experiment.overrides import ROOT

from .report import Row, Workload
from .timing import Spread, alternate, peak, ratio, read_round_seconds, with_rounds

START_UP = 5.0  # seconds
INDEPENDENT = 1.1  # times a round on a smaller population of which as many are sampled


@dataclass(frozen=True)
class Growth(Workload):
    """Seconds of a round and of the start-up, peak bytes.

    Parameters
    ----------
    populations : numbers of nodes, ascending
    sampled : how many of them train in a round; all where there are fewer
    rounds : of a measurement; the first is not counted
    """

    populations: tuple[int, ...] = (10, 100, 1000, 10000)
    sampled: int = 100
    rounds: int = 12

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure each population in turn."""
        commands = {n: partial(_run, self._setting(n), self.rounds) for n in self.populations}
        found = alternate({str(n): command for n, command in commands.items()}, repeats)
        rows = []
        for before, population in zip((None, *self.populations), self.populations, strict=False):
            rows += self._rows(before, population, found)
        return rows

    def _setting(self, population: int) -> str:
        overrides = (
            f"experiment=fedexp/synthetic dataset.load.dimension=10 dataset.load.rows=1 "
            f"dataset.load.num_nodes={population} num_nodes={population} client.local_steps=1 "
            f"nodes_per_round={self._asked(population)}"
        )
        return with_rounds(overrides, self.rounds)

    def _rows(self, before: int | None, population: int, found: dict[str, list["Found"]]) -> list[Row]:
        """Return a population's rows, a round beside one of the population before it."""
        mine = found[str(population)]
        subject = self._subject(population)
        rounds = [one.round for one in mine]
        row = Row(self.name, subject, "round", "s", Spread.of(rounds))
        if before is not None:
            growth = self._asked(population) / self._asked(before)  # linear in what is sampled
            quotient = ratio(rounds, [one.round for one in found[str(before)]])
            beside, goal = self._subject(before), max(growth, INDEPENDENT)
            row = Row(self.name, subject, "round", "s", row.value, beside, quotient, goal)
        start, memory = Spread.of([one.start for one in mine]), Spread.of([one.peak for one in mine])
        return [
            row,
            Row(self.name, subject, "start-up", "s", start, at_most=START_UP),
            Row(self.name, subject, "peak memory", "B", memory),
        ]

    def _asked(self, population: int) -> int:
        return min(population, self.sampled)

    def _subject(self, population: int) -> str:
        return f"{population:,} nodes, {self._asked(population)} sampled"


@dataclass(frozen=True)
class Found:
    """What one run cost: seconds of a round and of the start-up, peak bytes."""

    round: float
    start: float
    peak: int


def _run(overrides: str, rounds: int) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "baselines.run", *shlex.split(overrides)]
        started = time.perf_counter()
        process = subprocess.Popen(
            [*command, f"hydra.run.dir={folder}"],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                if line.startswith("round 1/"):
                    first = time.perf_counter() - started
                if line.startswith(f"round {rounds}/"):  # it lives on to draw its figures
                    memory = peak(process.pid)
        if process.returncode:
            raise RuntimeError(f"{shlex.join(command)} ended with {process.returncode}")
        seconds = median(read_round_seconds(Path(folder))[1:])
    return Found(seconds, first - seconds, memory)
