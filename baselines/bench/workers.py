"""lenet-ray: our program on Ray with two workers, beside two plain loops in two processes."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from baselines.experiment import experiment

from . import runs
from .peers import flower, present
from .plain import Client, train_round
from .report import Row, compared
from .timing import Contenders, alternate, round_seconds
from .workload import Workload

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
        ours = runs.with_rounds(f"{self.setting} runtime=ray runtime.cpus={self.workers}", self.rounds)
        others = present(self.name, [flower(self.setting, rounds=self.rounds)], peers)
        loops = f"plain loops in {self.workers} processes"
        subject = f"ray, {self.workers} workers"
        with Processes(self.setting, self.rounds, self.workers) as processes:
            contenders: Contenders = {subject: lambda: runs.run(ours).round, loops: processes, **others}
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
