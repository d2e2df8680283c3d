"""Nodes that classify with a model of which one layer is frozen, and how they play rounds."""

from collections.abc import Callable
from functools import partial

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from torch import nn
from torch.optim import SGD

from baselines.grids.inline import InlineGrid
from clients import Classification, Examples, Frozen, LocalTraining, Node, client_app
from strategies.core.strategy import BaseStrategy

NODES, CLASSES = 4, 3
NAMES = ("2.weight", "2.bias")


def network(seed: int = 0, buffers: bool = True) -> nn.Module:
    """Return a model whose middle layer, most of its parameters, is frozen."""
    torch.manual_seed(seed)
    norm = nn.BatchNorm1d(8) if buffers else nn.LayerNorm(8)
    net = nn.Sequential(nn.Linear(6, 8), norm, nn.Linear(8, 50), nn.ReLU(), nn.Linear(50, CLASSES))
    net[2].requires_grad_(False)
    return net


def start() -> ArrayRecord:
    return ArrayRecord(network().state_dict())


def classifiers(
    own: Callable[[], Frozen | None] = lambda: None,
    private: tuple[str, ...] = (),
    change: Callable[[nn.Module], object] | None = None,
    buffers: bool = True,
) -> InlineGrid:
    """Return nodes that know as ``own`` what their model's frozen parameters are.

    ``change`` is called with the model after the training of node 0.
    """
    draws = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(30 * NODES, 6, generator=draws), torch.arange(30 * NODES) % CLASSES
    net, frozen = network(buffers=buffers), own()
    training = LocalTraining(optimizer=partial(SGD, lr=0.2), batch_size=8, private=list(private))

    class Changing(LocalTraining):
        def __call__(self, model: nn.Module, *rest: object, **more: object) -> dict[str, float]:  # type: ignore[override]
            metrics = super().__call__(model, *rest, **more)  # type: ignore[arg-type]
            assert change is not None
            change(model)
            return metrics

    changing = Changing(optimizer=partial(SGD, lr=0.2), batch_size=8)

    def node_of(message: Message, context: Context) -> Node:
        k = int(context.node_config["partition-id"])
        data = Examples(inputs, targets, torch.arange(30) + 30 * k)
        local = changing if change is not None and k == 0 else training
        return Node(net, local, Classification(), data, data, seed=4, frozen=frozen)

    return InlineGrid(client_app(node_of), NODES)


def own() -> Frozen | None:
    return Frozen.of(network())


Played = tuple[ArrayRecord, list[Message], list[Message]]


def play(
    strategy: BaseStrategy, grid: InlineGrid, arrays: ArrayRecord, first: int = 1, last: int = 3
) -> list[Played]:
    """Return the model, the messages and the replies after each round."""
    history = []
    for server_round in range(first, last + 1):
        messages = list(strategy.configure_train(server_round, arrays, ConfigRecord(), grid))
        replies = list(grid.send_and_receive(messages))
        new, _ = strategy.aggregate_train(server_round, replies)
        arrays = new or arrays
        history.append((arrays, messages, replies))
    return history


def names_in(message: Message) -> set[str]:
    return set(message.content.array_records["arrays"])
