"""Nodes whose rounds are taken one by one and batched, held side by side."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import nn
from torch.nn import Parameter
from torch.optim import SGD

from baselines.grids.inline import InlineGrid
from clients import Classification, Correction, Examples, LocalTraining, Node, RoundStart, client_app
from clients.batched.together import BatchedTrainer
from strategies.shared.arrays import view_values

SIZES = (13, 4, 30, 1, 22)  # batches of 8: whole ones, short ones, one example; unequal numbers of steps
FEATURES, CLASSES = 6, 3


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))


def same(one: Message, other: Message) -> None:
    """Hold two replies side by side, to 1e-5 of an array's largest number."""
    assert one.metadata.src_node_id == other.metadata.src_node_id
    assert one.content.array_records.keys() == other.content.array_records.keys()
    for record, arrays in one.content.array_records.items():
        for name, array in arrays.items():
            expected, actual = view_values(array), view_values(other.content.array_records[record][name])
            assert expected.shape == actual.shape
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    expected_metrics, metrics = one.content["metrics"], other.content["metrics"]
    assert expected_metrics.keys() == metrics.keys()
    for name in expected_metrics.keys() - {"client-seconds"}:
        assert metrics[name] == pytest.approx(expected_metrics[name], rel=1e-5), name


Change = Callable[[Node, int], Node]
CPU = torch.device("cpu")


def unchanged(node: Node, k: int) -> Node:
    return node


def grids(
    make: Callable[[], nn.Module] = perceptron, change: Change = unchanged
) -> tuple[nn.Module, InlineGrid, InlineGrid]:
    """Return the model, and the grids of its nodes one after another and together."""
    draws = torch.Generator().manual_seed(1)
    inputs = torch.randn(sum(SIZES), FEATURES, generator=draws)
    targets = torch.randint(CLASSES, (sum(SIZES),), generator=draws)
    rows = torch.randperm(sum(SIZES), generator=draws).split(SIZES)
    torch.manual_seed(0)
    shared = make().eval()
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), batch_size=8, local_epochs=2)

    def node_of(message: Message, context: Context) -> Node:
        k = int(context.node_config["partition-id"])
        examples = Examples(inputs, targets, rows[k])
        return change(Node(shared, training, Classification(), examples, examples, seed=7), k)

    app = client_app(node_of)
    return shared, InlineGrid(app, len(SIZES)), InlineGrid(app, len(SIZES), BatchedTrainer(node_of))


def ask(grid: InlineGrid, start: ArrayRecord, server_round: int, configs: dict[int, Any]) -> list[Message]:
    messages = []
    for k, node in enumerate(grid.get_node_ids()):
        config = ConfigRecord({"server-round": server_round, **configs.get(k, {})})
        messages.append(Message(RecordDict({"arrays": start, "config": config}), node, "train"))
    return grid.send_and_receive(messages)


def played(
    make: Callable[[], nn.Module] = perceptron,
    change: Change = unchanged,
    before: Callable[[nn.Module, int], object] = lambda model, server_round: None,
    configs: dict[int, Any] | None = None,
) -> bool:
    """Hold three rounds side by side; say whether the nodes were trained together."""
    both = []
    for which in (1, 2):
        shared, *pair = grids(make, change)
        random.seed(3)
        torch.manual_seed(4)
        start, replies = ArrayRecord(shared.state_dict()), []
        for server_round in (1, 2, 3):
            before(shared, server_round)
            replies += ask(pair[which - 1], start, server_round, configs or {})
        both.append(replies)
    together = pair[1].answering.batched_trainer is not None
    for one, other in zip(*both, strict=True):
        assert one.has_content()
        if together:
            same(one, other)
        else:
            assert [a.data for a in one.content["arrays"].values()] == [
                a.data for a in other.content["arrays"].values()
            ]
    return together


class Flipped(Correction):
    def __init__(self, start: RoundStart) -> None:
        self.start = start

    def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
        for p in parameters:
            assert p.grad is not None
            p.grad = -p.grad
