"""on-ray: what Ray costs beside the training itself, each as a command of its own."""

import csv
import multiprocessing
import os
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from baselines.experiment import experiment
from baselines.experiment.overrides import ROOT

from .peers import flower, present
from .plain import RESNET_NODES, Client, resnet_setting, train_round
from .report import Row, Workload, compared
from .timing import (
    Contenders,
    Spread,
    alternate,
    read_round_seconds,
    round_seconds,
    run_experiment,
    with_rounds,
)

# lenet-ray: our program on Ray with two workers, beside two plain loops in two processes.


Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Workers(Workload):
    """Seconds of a round on Ray, with one thread per worker.

    Parameters
    ----------
    setting : the overrides
    at_most : the goal beside the plain loops
    rounds : of a measurement; the first is not counted
    workers : how many, on both sides
    """

    setting: str
    at_most: float
    rounds: int = 3
    workers: int = 2

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure ours beside the plain loops and Flower's own clients."""
        ours = with_rounds(f"{self.setting} runtime=ray runtime.cpus={self.workers}", self.rounds)
        others = present(self.name, [flower(self.setting, rounds=self.rounds)], peers)
        loops = f"plain loops in {self.workers} processes"
        subject = f"ray, {self.workers} workers"
        with Processes(self.setting, self.rounds, self.workers) as processes:
            contenders: Contenders = {
                subject: lambda: run_experiment(ours).round,
                loops: processes,
                **others,
            }
            samples = alternate(contenders, repeats)
        goals = {loops: self.at_most, **dict.fromkeys(others)}
        return compared(self.name, "round", "s", samples, {subject: goals})


class Processes:
    """Rounds of federated averaging by hand, the clients dealt out to processes that keep their data.

    Parameters
    ----------
    setting : whose model, data and hyper-parameters it takes
    rounds : how many to run in a measurement; the first is not counted
    workers : how many processes
    """

    def __init__(self, setting: str, rounds: int, workers: int) -> None:
        this = experiment.load(setting)
        self.setting = setting
        self.state: Arrays = {name: values.numpy() for name, values in this.model().state_dict().items()}
        self.shares = [tuple(range(first, this.settings.num_nodes, workers)) for first in range(workers)]
        self.sizes = [sum(len(this.partitions[k][0]) for k in share) for share in self.shares]
        self.rounds = rounds

    def __enter__(self) -> "Processes":
        """Start the processes, before anything is measured."""
        context = multiprocessing.get_context("spawn")
        self.pools = [ProcessPoolExecutor(1, context) for _ in self.shares]
        self._round()
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        for pool in self.pools:
            pool.shutdown()

    def __call__(self) -> float:
        """Return the seconds of a round: the median of all but the first."""
        return round_seconds(self._round, self.rounds)

    def _round(self) -> None:
        pending = [
            pool.submit(_train, self.setting, self.state, share)
            for pool, share in zip(self.pools, self.shares, strict=True)
        ]
        means = [future.result() for future in pending]
        total = sum(self.sizes)
        shares = [size / total for size in self.sizes]
        self.state = {
            name: np.add.reduce([share * mean[name] for share, mean in zip(shares, means, strict=True)])
            for name in self.state
        }


_clients: dict[tuple[int, ...], list[Client]] = {}  # in a worker process


def _train(setting: str, state: Arrays, share: tuple[int, ...]) -> Arrays:
    """Return the average of a share of the clients, in a process of its own."""
    torch.set_num_threads(1)
    this = experiment.load(setting)
    if share not in _clients:
        _clients[share] = [Client.of(this, k) for k in share]
    start = {name: torch.from_numpy(values) for name, values in state.items()}
    mean = train_round(this.node_model, start, _clients[share])
    return {name: values.numpy() for name, values in mean.items()}


# Plain loops in processes that also evaluate: each takes its share of the test set after each round.


BATCH_SIZE = 1000


class Evaluated(Processes):
    """Rounds of federated averaging by hand, evaluated before the first and after each."""

    def __call__(self) -> float:
        """Return the seconds of all rounds."""
        began = time.perf_counter()
        self._evaluate()
        for _ in range(self.rounds):
            self._round()
            self._evaluate()
        return time.perf_counter() - began

    def _evaluate(self) -> tuple[float, float]:
        """Return the loss and the accuracy."""
        pending = [
            pool.submit(_sums, self.setting, self.state, k, len(self.pools))
            for k, pool in enumerate(self.pools)
        ]
        loss, correct, total = np.sum([future.result() for future in pending], axis=0)
        return loss / total, correct / total


@torch.no_grad()
def _sums(setting: str, state: Arrays, share: int, shares: int) -> tuple[float, float, int]:
    """Return the loss, the right predictions and the examples of a share of the batches."""
    torch.set_num_threads(1)
    this = experiment.load(setting)
    model = this.node_model
    model.load_state_dict({name: torch.from_numpy(values) for name, values in state.items()})
    model.eval()
    examples, loss, correct, total = this.test_examples, 0.0, 0.0, 0
    for start in range(share * BATCH_SIZE, len(examples), shares * BATCH_SIZE):
        inputs, targets = examples.batch(slice(start, start + BATCH_SIZE), this.device)
        outputs = model(inputs)
        loss += float(cross_entropy(outputs, targets, reduction="sum"))
        correct += float((outputs.argmax(1) == targets).sum())
        total += len(targets)
    return loss, correct, total


DIGITS = "dataset=digits num_nodes=10 rounds=2"
RAY = "runtime=ray runtime.cpus=2"
ROUNDS = 6
MESSAGES = f"{resnet_setting(steps=1)} client.batch_size=1 client.local_epochs=null client.local_steps=1"
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
        found = alternate({"ray": partial(seen, with_rounds(f"{self.messages} {RAY}", 8))}, repeats)["ray"]
        costs = [2 * (median(one.rounds[1:]) - one.server) / RESNET_NODES - one.training for one in found]
        return [Row(self.name, "ResNet-18", "a node's message", "s", Spread.of(costs), at_most=0.1)]

    def _many(self, repeats: int) -> list[Row]:
        sampled = self.population // 100
        trivial = (
            f"{TRIVIAL} dataset.load.num_nodes={self.population} num_nodes={self.population} "
            f"nodes_per_round={sampled}"
        )
        subject = f"{self.population:,} nodes, {sampled:,} sampled"
        ways = {
            f"{subject}, ray": partial(seen, with_rounds(f"{trivial} {RAY}", 5)),
            f"{subject}, inline": partial(seen, with_rounds(trivial, 5)),
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
        return Seen(first, read_round_seconds(Path(name)), wall, training, server)
