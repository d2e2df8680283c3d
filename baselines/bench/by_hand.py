"""The limits: a round written by hand in plain PyTorch, on tensors in memory."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from baselines.datasets import Dataset
from baselines.experiment.experiment import Experiment, load
from clients import Classification as Task

from .report import round_seconds

State = dict[str, Tensor]
Limit = Callable[[str, int], AbstractContextManager[Callable[[], float]]]  # given overrides and rounds


@dataclass(frozen=True)
class Client:
    """One client's tensors, transformed and in memory, and how it trains."""

    inputs: Tensor
    targets: Tensor
    lr: float
    batch_size: int | None  # None: all examples in every step
    steps: int | None  # None: one epoch
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy

    @classmethod
    def of(cls, experiment: Experiment, partition_id: int) -> "Client":
        """Return the client that holds a partition of an experiment."""
        training = experiment.training
        assert training.local_steps or training.local_epochs == 1, "a plain client trains one epoch"
        inputs, targets = experiment.node(partition_id).train.batch(slice(None), experiment.device)
        return cls(inputs, targets, training.lr, training.batch_size, training.local_steps)

    @classmethod
    def of_regression(cls, experiment: Experiment, partition_id: int) -> "Client":
        """Return the client for FedExP's synthetic problem, with its loss."""
        inputs, targets = experiment.node(partition_id).train.batch(slice(None), experiment.device)
        training = experiment.training
        return cls(inputs, targets, training.lr, None, training.local_steps, _half_squared_error)

    def train(self, model: nn.Module) -> None:
        """Train ``model`` in place with SGD, the examples in a fresh order."""
        optimizer = torch.optim.SGD(model.parameters(), self.lr)
        model.train()
        for inputs, targets in self._batches():
            optimizer.zero_grad()
            self.loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def _batches(self) -> Sequence[tuple[Tensor, Tensor]]:
        if self.batch_size is None:
            return [(self.inputs, self.targets)] * (self.steps or 1)
        batches = torch.split(torch.randperm(len(self.targets)), self.batch_size)
        return [(self.inputs[rows], self.targets[rows]) for rows in batches[: self.steps]]


ClientOf = Callable[[Experiment, int], Client]  # given the experiment and a partition id


def _half_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs - targets).square().sum()


def train_round(model: nn.Module, start: State, clients: Sequence[Client]) -> State:
    """Return the average of the models that the clients train from ``start``, weighted by their examples."""
    total = sum(len(client.targets) for client in clients)
    mean = {name: torch.zeros_like(values) for name, values in start.items()}
    for client in clients:
        model.load_state_dict(start)
        client.train(model)
        for name, values in model.state_dict().items():
            mean[name].add_(values, alpha=len(client.targets) / total)
    return mean


class Loop:
    """Rounds of federated averaging, one client after another.

    Parameters
    ----------
    experiment : whose model, data and hyper-parameters it takes
    rounds : how many to run in a measurement; the first is not counted
    """

    def __init__(self, experiment: Experiment, rounds: int) -> None:
        self.model = experiment.model()
        self.state = {name: values.clone() for name, values in self.model.state_dict().items()}
        self.clients = [Client.of(experiment, k) for k in range(experiment.settings.num_nodes)]
        self.rounds = rounds

    def __call__(self) -> float:
        """Return the seconds of a round: the median of all but the first."""
        torch.set_num_threads(1)  # two are no faster on small models, and slower on a busy machine
        return round_seconds(self.one_round, self.rounds)

    def one_round(self) -> None:
        """Train every client and average."""
        self.state = train_round(self.model, self.state, self.clients)


def loop(setting: str, rounds: int) -> AbstractContextManager[Loop]:
    """Return the plain loop in this process."""
    return nullcontext(Loop(load(setting), rounds))


class Processes:
    """Rounds of federated averaging, the clients divided among processes that keep their data.

    Parameters
    ----------
    setting : overrides of the model, data and hyper-parameters
    rounds : how many to run in a measurement; the first is not counted
    workers : how many processes, each with one thread
    """

    def __init__(self, setting: str, rounds: int, workers: int = 2) -> None:
        experiment = load(setting)
        self.setting, self.rounds = setting, rounds
        self.state = {name: values.numpy() for name, values in experiment.model().state_dict().items()}
        self.shares = [range(first, experiment.settings.num_nodes, workers) for first in range(workers)]
        sizes = [sum(len(experiment.partitions[k][0]) for k in share) for share in self.shares]
        self.weights = [size / sum(sizes) for size in sizes]

    def __enter__(self) -> "Processes":
        """Start the processes and run a round to warm up."""
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
        pairs = zip(self.pools, self.shares, strict=True)
        pending = [pool.submit(_train, self.setting, self.state, share) for pool, share in pairs]
        means = [future.result() for future in pending]
        self.state = {
            name: np.add.reduce([w * mean[name] for w, mean in zip(self.weights, means, strict=True)])
            for name in self.state
        }


_clients: dict[range, list[Client]] = {}  # of a worker process


def _train(setting: str, state: dict[str, np.ndarray], share: range) -> dict[str, np.ndarray]:
    """Return the average of a share of the clients; runs in a worker process."""
    torch.set_num_threads(1)
    experiment = load(setting)
    if share not in _clients:
        _clients[share] = [Client.of(experiment, k) for k in share]
    start = {name: torch.from_numpy(values) for name, values in state.items()}
    mean = train_round(experiment.node_model, start, _clients[share])
    return {name: values.numpy() for name, values in mean.items()}


class Addmm:
    """FedExP on the synthetic problem: gradient steps as ``addmm_``, and the server's step.

    Parameters
    ----------
    experiment : whose data and hyper-parameters it takes
    rounds : how many to run in a measurement; the first is not counted
    """

    def __init__(self, experiment: Experiment, rounds: int) -> None:
        clients = [Client.of_regression(experiment, k) for k in range(experiment.settings.num_nodes)]
        self.problems = [(one.inputs, one.inputs.T.contiguous(), one.targets) for one in clients]
        self.lr, self.steps, self.rounds = clients[0].lr, clients[0].steps or 1, rounds
        self.w = torch.zeros(clients[0].inputs.shape[1], 1, dtype=clients[0].inputs.dtype)

    def __call__(self) -> float:
        """Return the seconds of a round: the median of all but the first."""
        torch.set_num_threads(1)
        self.w.zero_()
        return round_seconds(self._round, self.rounds)

    def _round(self) -> None:
        moved = torch.empty(len(self.problems), *self.w.shape, dtype=self.w.dtype)
        for (a, transposed, b), w in zip(self.problems, moved, strict=True):
            w.copy_(self.w)
            for _ in range(self.steps):
                w.addmm_(transposed, torch.addmm(b, a, w, beta=-1), alpha=-self.lr)
        deltas = (self.w - moved).flatten(1)
        mean = deltas.mean(0)
        eta = max(1.0, float(deltas.square().sum(1).mean() / (2 * mean.square().sum())))
        self.w.view(-1).sub_(mean, alpha=eta)


def addmm(setting: str, rounds: int) -> AbstractContextManager[Addmm]:
    """Return FedExP by hand."""
    return nullcontext(Addmm(load(setting), rounds))


def noise_setting(channels: int, size: int, examples: int, nodes: int) -> str:
    """Return the overrides for nodes with equally many pictures of noise.

    No data set is needed, and a step takes as long as on real pictures.
    """
    load_noise = f"{{_target_:{__name__}.noise,examples:{examples},size:{size},channels:{channels}}}"
    return (
        f"dataset=digits ~dataset.load '+dataset.load={load_noise}' dataset.shape=[{channels},{size},{size}] "
        f"num_nodes={nodes} partitioner=iid"
    )


def noise(examples: int, size: int, channels: int = 3) -> Dataset:
    """Return pictures [examples, channels, size, size] of noise in ten classes."""
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(examples, channels, size, size, generator=draws)
    targets = torch.arange(examples) % 10
    return Dataset(inputs, targets, inputs[:10], targets[:10], Task())
