"""Nodes that compress: one that learns two numbers, some that classify, and how they play rounds."""

from functools import partial

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from torch import nn
from torch.optim import SGD

from baselines.grids.inline import InlineGrid
from clients import Classification, Examples, LeastSquares, LocalTraining, Node, client_app
from strategies import Compression, FedAvg, Grouped, PseudoGradientStrategy
from strategies.shared.arrays import view_values

TARGET = torch.tensor([[4.0], [-2.0]])


def quadratic(rate: float = 0.5, target: torch.Tensor = TARGET) -> InlineGrid:
    """Return a node that learns w = target by a step of this rate: its gradient is w - target."""
    size = len(target)
    data = Examples(torch.eye(size), target, torch.arange(size))
    training = LocalTraining(optimizer=partial(SGD, lr=rate), batch_size=None)
    node = Node(nn.Linear(size, 1, bias=False), training, LeastSquares(1), data, data)
    return InlineGrid(client_app(lambda *_: node), 1)


def zeros(size: int = 2) -> ArrayRecord:
    return ArrayRecord({"weight": torch.zeros(1, size)})


def play(
    strategy: PseudoGradientStrategy | Grouped, grid: InlineGrid, arrays: ArrayRecord, rounds: int
) -> list[tuple[ArrayRecord, list[Message]]]:
    """Return the model and the nodes' replies after each round."""
    history = []
    for server_round in range(1, rounds + 1):
        messages = strategy.configure_train(server_round, arrays, ConfigRecord(), grid)
        replies = list(grid.send_and_receive(messages))
        new, _ = strategy.aggregate_train(server_round, replies)
        arrays = new or arrays
        history.append((arrays, replies))
    return history


def weights(arrays: ArrayRecord) -> list[float]:
    return np.concatenate([view_values(array).ravel() for array in arrays.values()]).tolist()


def normed() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    net[3].bias.requires_grad_(False)
    return net


def classifiers(nodes: int = 3, private: tuple[str, ...] = ()) -> InlineGrid:
    """Return nodes that share a model with buffers and a frozen bias."""
    draws = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(30 * nodes, 6, generator=draws), torch.arange(30 * nodes) % 3
    net = normed()
    training = LocalTraining(optimizer=partial(SGD, lr=0.2), batch_size=8, private=list(private))

    def node_of(message: Message, context: Context) -> Node:
        rows = torch.arange(30) + 30 * int(context.node_config["partition-id"])
        data = Examples(inputs, targets, rows)
        return Node(net, training, Classification(), data, data, seed=4)

    return InlineGrid(client_app(node_of), nodes)


def start() -> ArrayRecord:
    return ArrayRecord(normed().state_dict())


def strategy(compression: Compression) -> FedAvg:
    return FedAvg(compression=compression, query_partitions=True)
