"""SCAFFOLD over a node's messages: which option it is asked for, and which c_k the server has counted."""

from functools import partial

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import nn
from torch.optim import SGD

from baselines.runtimes.inline import InlineGrid
from clients import Examples, LeastSquares, LocalTraining, Node, client_app

RATE, STEPS = 0.25, 2
X, Y = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[4.0], [1.0]]).double()


def gradient(w: float) -> float:
    """Of 0.5 sum (x w - y)^2 over both rows."""
    return sum(float(x) * (float(x) * w - float(y)) for x, y in zip(X, Y, strict=True))


def grid(batch_size: int | None = None) -> InlineGrid:
    model = nn.Linear(1, 1, bias=False).double()
    training = LocalTraining(
        optimizer=partial(SGD, lr=RATE), local_epochs=None, local_steps=STEPS, batch_size=batch_size
    )
    examples = Examples(X, Y, torch.arange(2))

    def node(message: Message, context: Context) -> Node:
        return Node(model, training, LeastSquares(1), examples, examples)

    return InlineGrid(client_app(node), 3)


def change(grid: InlineGrid, node: int, w: float, server_round: int, **config: int | list[int]) -> float:
    """Let a node train from w with c = 0; return the change of its c_k."""
    arrays = ArrayRecord({"weight": torch.full((1, 1), w).double()})
    message_config = ConfigRecord({"server-round": server_round, **config})
    control = ArrayRecord({"weight": torch.zeros(1, 1).double()})
    content = RecordDict({"arrays": arrays, "control": control, "config": message_config})
    to = grid.get_node_ids()[node]
    (reply,) = grid.send_and_receive([Message(content, to, "train")])
    return float(reply.content["control"]["weight"].numpy()[0, 0])


def test_option_1_is_the_gradient_where_the_round_began() -> None:
    assert change(grid(), 0, 3.0, 1, **{"control-option": 1}) == pytest.approx(gradient(3.0), rel=1e-12)


def test_option_1_in_batches_is_the_mean_of_the_batches() -> None:
    actual = change(grid(batch_size=1), 0, 3.0, 1, **{"control-option": 1})
    assert actual == pytest.approx(gradient(3.0) / 2, rel=1e-12)


def test_option_2_is_the_mean_gradient_of_the_steps() -> None:
    first = gradient(3.0)
    second = gradient(3.0 - RATE * first)
    actual = change(grid(), 0, 3.0, 1, **{"control-option": 2})
    assert actual == pytest.approx((first + second) / STEPS, rel=1e-12)


@pytest.mark.parametrize(
    ("counted", "known"),
    [({}, gradient(2.0)), ({"control-lost": [0, 1], "control-counted": [7, 1]}, gradient(1.0))],
    ids=["the last", "the one before"],
)
def test_a_node_finds_itself_among_those_whose_change_was_lost(
    counted: dict[str, list[int]], known: float
) -> None:
    nodes = grid()
    for server_round in (1, 2):
        change(nodes, 1, float(server_round), server_round, **{"control-option": 1})
    actual = change(nodes, 1, 5.0, 3, **{"control-option": 1, **counted})
    assert actual == pytest.approx(gradient(5.0) - known, rel=1e-12)


def test_another_nodes_loss_is_not_its_own() -> None:
    nodes = grid()
    change(nodes, 2, 1.0, 1, **{"control-option": 1})
    config = {"control-lost": [0, 1], "control-counted": [0, 0]}
    actual = change(nodes, 2, 5.0, 2, **{"control-option": 1, **config})
    assert actual == pytest.approx(gradient(5.0) - gradient(1.0), rel=1e-12)
