"""on-ray: what Ray costs beside the training itself, each as a command of its own."""

import csv
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

from baselines.experiment.places import ROOT

from . import resnet, runs
from .evaluated import Evaluated
from .report import Row, compared
from .timing import Contenders, Spread, alternate
from .workload import Workload

DIGITS = "dataset=digits num_nodes=10 rounds=2"
RAY = "runtime=ray runtime.cpus=2"
ROUNDS = 6
MESSAGES = f"{resnet.setting(steps=1)} client.batch_size=1 client.local_epochs=null client.local_steps=1"
TRIVIAL = (
    "experiment=fedexp/synthetic dataset.load.dimension=10 dataset.load.rows=1 client.local_steps=1 "
    "strategy.average_last=1"
)
SHARE, START_UP = 1.15, 6.0  # of the loops' seconds, and seconds more: what a run may take


@dataclass(frozen=True)
class Seen:
    """The times of a command, in seconds.

    Parameters
    ----------
    first : from the command until round 1 has been trained
    rounds : of each round, as metrics.csv has them
    wall : from the command until it has ended
    training : the nodes' mean seconds in a round
    server : the server's seconds in a round, once all have answered
    """

    first: float
    rounds: list[float]
    wall: float
    training: float
    server: float


@dataclass(frozen=True)
class OnRay(Workload):
    """Seconds until the first round, of whole runs, of messages, and with 100,000 nodes.

    Parameters
    ----------
    lenet : the overrides of the run that is evaluated after each round
    messages : those of nodes whose models are large and whose training is short
    population : how many trivial nodes there are where there are many; a hundredth is sampled
    parts : what is measured
    """

    lenet: str
    messages: str = MESSAGES
    population: int = 100_000
    parts: tuple[str, ...] = ("start", "whole", "messages", "many")

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure each beside what it is held to."""
        ways = {
            "start": self._start,
            "whole": self._whole,
            "messages": self._messages,
            "many": self._many,
        }
        return [row for part in self.parts for row in ways[part](repeats)]

    def _start(self, repeats: int) -> list[Row]:
        found = alternate({"ray": partial(seen, f"{DIGITS} {RAY}")}, repeats)["ray"]
        first = Spread.of([one.first for one in found])
        round_1 = Spread.of([one.rounds[0] for one in found])
        return [
            Row(self.name, "digits, 10 nodes", "command to round 1", "s", first, at_most=8.0),
            Row(self.name, "digits, 10 nodes", "round 1, the workers' start included", "s", round_1),
        ]

    def _whole(self, repeats: int) -> list[Row]:
        """Measure a run that is evaluated after each round, beside the same by hand."""
        run = f"{self.lenet} {RAY} rounds={ROUNDS}"
        ours, theirs = "LeNet, command to exit", f"{SHARE} of plain loops, and {START_UP:g} s"
        with Evaluated(self.lenet, ROUNDS, 2) as loops:
            contenders: Contenders = {
                ours: lambda: seen(run).wall,
                theirs: lambda: SHARE * loops() + START_UP,
            }
            samples = alternate(contenders, repeats)
        goal = {ours: {theirs: 1.0}}
        return compared(self.name, f"{ROUNDS} rounds", "s", samples, goal)

    def _messages(self, repeats: int) -> list[Row]:
        """Measure what a ResNet-18 costs to send, train aside and take back."""
        found = alternate({"ray": partial(seen, runs.with_rounds(f"{self.messages} {RAY}", 8))}, repeats)[
            "ray"
        ]
        costs = [2 * (median(one.rounds[1:]) - one.server) / resnet.NODES - one.training for one in found]
        return [Row(self.name, "ResNet-18", "a node's message", "s", Spread.of(costs), at_most=0.1)]

    def _many(self, repeats: int) -> list[Row]:
        sampled = self.population // 100
        trivial = (
            f"{TRIVIAL} dataset.load.num_nodes={self.population} num_nodes={self.population} "
            f"nodes_per_round={sampled}"
        )
        subject = f"{self.population:,} nodes, {sampled:,} sampled"
        ways = {
            f"{subject}, ray": partial(seen, runs.with_rounds(f"{trivial} {RAY}", 5)),
            f"{subject}, inline": partial(seen, runs.with_rounds(trivial, 5)),
        }
        found = alternate(ways, repeats)
        ray, inline = ways
        rounds = {way: [median(one.rounds[1:]) for one in each] for way, each in found.items()}
        starts = {way: [one.first for one in each] for way, each in found.items()}
        return [
            *compared(self.name, "round", "s", rounds, {ray: {inline: 3.0}}),
            *compared(self.name, "command to round 1", "s", starts, {ray: {inline: 2.0}}),
        ]


def seen(overrides: str) -> Seen:
    """Run a command, and look at what it writes while it does."""
    with tempfile.TemporaryDirectory() as name:
        metrics = Path(name) / "metrics.csv"
        command = [sys.executable, "-m", "baselines.run", *shlex.split(overrides), f"hydra.run.dir={name}"]
        began = time.perf_counter()
        with subprocess.Popen(command, cwd=ROOT, env=os.environ, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and not (metrics.exists() and "\n1,train," in metrics.read_text()):
                time.sleep(0.02)
            first = time.perf_counter() - began
        wall = time.perf_counter() - began
        if process.returncode:
            raise RuntimeError(f"{shlex.join(command)} ended with {process.returncode}")
        with open(metrics, newline="") as file:
            rows = list(csv.DictReader(file))
        training, server = (
            median(float(row["value"]) for row in rows if row["metric"] == metric and row["round"] != "1")
            for metric in ("client_seconds", "server_seconds")
        )
        return Seen(first, runs.rounds_in(Path(name)), wall, training, server)
