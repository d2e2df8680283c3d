"""Clipping of nodes that train together is torch's, its epsilon included."""

from functools import partial

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import nn
from torch.optim import SGD

from baselines.runtimes.inline import InlineGrid
from clients import Examples, LeastSquares, LocalTraining, Node, client_app
from clients.batched.together import BatchedTrainer

SLOPES = (1e-6, 3e-6, 5e-7)  # of 0.5 (w x - y)^2 at w = 0, one node each


def reached(together: bool, limit: float) -> list[float]:
    """Return each node's w after one step with the rate 1."""
    model = nn.Linear(1, 1, bias=False).double()
    training = LocalTraining(optimizer=partial(SGD, lr=1.0), batch_size=None, max_grad_norm=limit)
    inputs = torch.ones(len(SLOPES), 1, dtype=torch.float64)
    targets = -torch.tensor(SLOPES, dtype=torch.float64)[:, None]

    def node_of(message: Message, context: Context) -> Node:
        k = int(context.node_config["partition-id"])
        examples = Examples(inputs, targets, torch.tensor([k]))
        return Node(model, training, LeastSquares(1), examples, examples)

    grid = InlineGrid(client_app(node_of), len(SLOPES), BatchedTrainer(node_of) if together else None)
    start = ArrayRecord({"weight": torch.zeros(1, 1, dtype=torch.float64)})
    content = RecordDict({"arrays": start, "config": ConfigRecord({"server-round": 1})})
    messages = [Message(content, node, "train") for node in grid.get_node_ids()]
    replies = grid.send_and_receive(messages)
    assert (grid.answering.batched_trainer is not None) == together
    return [float(reply.content["arrays"]["weight"].numpy()[0, 0]) for reply in replies]


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_the_norm_has_an_epsilon_of_a_millionth(together: bool) -> None:
    """torch.nn.utils.clip_grad_norm_: g <- g min(1, limit / (||g|| + 1e-6))."""
    expected = [-g * min(1.0, 1e-6 / (g + 1e-6)) for g in SLOPES]
    assert expected[0] == -0.5e-6
    assert reached(together, 1e-6) == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_a_small_gradient_is_left_as_it_is(together: bool) -> None:
    assert reached(together, 1e-5) == pytest.approx([-g for g in SLOPES], rel=1e-9, abs=0)
