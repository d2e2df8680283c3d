"""The limit of local training: clients of plain PyTorch, one after another, on tensors in memory."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from baselines.datasets import Dataset
from baselines.experiment.experiment import Experiment
from clients import Classification as Task

State = dict[str, Tensor]


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
    def of(cls, this: Experiment, partition_id: int) -> "Client":
        """Return the client that holds a partition of an experiment."""
        training = this.training
        assert training.local_steps or training.local_epochs == 1, "a plain client trains one epoch"
        inputs, targets = this.node(partition_id).train.batch(slice(None), this.device)
        return cls(inputs, targets, training.lr, training.batch_size, training.local_steps)

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


ClientOf = Callable[[Experiment, int], Client]  # of the node that holds a partition


def train_round(model: nn.Module, start: State, clients: Sequence[Client]) -> State:
    """Return the average of the models that the clients make of ``start``, weighted by their examples."""
    total = sum(len(client.targets) for client in clients)
    mean = {name: torch.zeros_like(values) for name, values in start.items()}
    for client in clients:
        model.load_state_dict(start)
        client.train(model)
        for name, values in model.state_dict().items():
            mean[name].add_(values, alpha=len(client.targets) / total)
    return mean


class Loop:
    """Rounds of federated averaging, written by hand.

    Parameters
    ----------
    this : whose model, data and hyper-parameters it takes
    rounds : how many to run in a measurement; the first is not counted
    """

    def __init__(self, this: Experiment, rounds: int) -> None:
        self.model = this.model()
        self.state = {name: values.clone() for name, values in self.model.state_dict().items()}
        self.clients = [Client.of(this, k) for k in range(this.settings.num_nodes)]
        self.rounds = rounds

    def __call__(self) -> float:
        """Return the seconds of a round: the median of all but the first."""
        torch.set_num_threads(1)  # two are no faster on small models, and slower on a busy machine
        seconds = []
        for _ in range(self.rounds):
            started = time.perf_counter()
            self.state = train_round(self.model, self.state, self.clients)
            seconds.append(time.perf_counter() - started)
        return median(seconds[1:])


# resnet: ResNet-18 with GroupNorm on 32x32 pictures of noise; a step takes as long as on real ones.


RESNET_NODES = 4
SIZE = 32


def resnet_setting(steps: int, size: int = SIZE, model: str = "resnet18_gn") -> str:
    """Return the overrides for four nodes that take so many steps of 32 pictures in a round."""
    return f"{resnet_pictures(3, size, RESNET_NODES * 32 * steps, RESNET_NODES)} model={model}"


def resnet_pictures(channels: int, size: int, examples: int, nodes: int) -> str:
    """Return the overrides for nodes that hold equally many pictures of noise."""
    load = f"{{_target_:{__name__}.noise,examples:{examples},size:{size},channels:{channels}}}"
    return (
        f"dataset=digits ~dataset.load '+dataset.load={load}' dataset.shape=[{channels},{size},{size}] "
        f"num_nodes={nodes} partitioner=iid"
    )


def noise(examples: int, size: int, channels: int = 3) -> Dataset:
    """Return pictures [examples, channels, size, size] of noise in ten classes."""
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(examples, channels, size, size, generator=draws)
    targets = torch.arange(examples) % 10
    return Dataset(inputs, targets, inputs[:10], targets[:10], Task())
