"""The plan of a round of several nodes takes what each node alone would take."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import Tensor, nn
from torch.optim import SGD

from clients import Classification, Examples, LocalTraining, Node
from clients.batched.stack import BatchedStep, StepPlan
from clients.round import ClientRound
from strategies.shared.flower_private import become_server

SIZES = (7, 5, 2)  # the most steps first


def turns(training: LocalTraining) -> list[ClientRound]:
    become_server()  # messages take their run's number from it
    model = nn.Linear(2, 2)
    inputs, targets = torch.zeros(20, 2), torch.zeros(20, dtype=torch.int64)
    rows = torch.arange(19, 5, -1).split(SIZES)
    order = []
    for k, index in enumerate(rows):
        data = Examples(inputs, targets, index)
        content = RecordDict(
            {"arrays": ArrayRecord(model.state_dict()), "config": ConfigRecord({"server-round": 1})}
        )
        context = Context(1, k, {"partition-id": k}, RecordDict(), {})
        node = Node(model, training, Classification(), data, data, seed=3)
        order.append(ClientRound(node, Message(content, k + 1, "train"), context))
    return order


def alone(turn: ClientRound) -> list[Tensor]:
    """Return the rows of each of a node's steps, by its own training."""
    training, data = turn.node.training, turn.node.train
    if training.is_full_batch(len(data)):
        return [data.index] * training.steps(len(data))
    draws = torch.Generator().manual_seed(turn.seed)
    return [data.index[positions] for positions in training.positions(len(data), draws)]


@pytest.mark.parametrize("batch_size", [1, 3, 5, 7, None])
@pytest.mark.parametrize("length", [{"local_epochs": 2}, {"local_epochs": None, "local_steps": 4}], ids=str)
def test_each_nodes_steps_are_its_own(batch_size: int | None, length: dict[str, int | None]) -> None:
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), batch_size=batch_size, **length)
    chosen = turns(training)
    expected = [alone(turn) for turn in chosen]
    steps: list[BatchedStep] = list(StepPlan.of(chosen).steps())
    assert len(steps) == max(map(len, expected))
    for number, step in enumerate(steps):
        active = [rows for rows in expected if len(rows) > number]
        assert len(step.rows) == len(active)
        present = torch.ones_like(step.rows, dtype=torch.bool) if step.present is None else step.present
        for actual, counts, rows in zip(step.rows, present, active, strict=True):
            assert actual[counts].tolist() == rows[number].tolist()
            assert actual[~counts].tolist() == [0] * int((~counts).sum())
        assert (step.present is None) == bool(present.all())


@pytest.mark.parametrize("batch_size", [1, 5, 7, None])
def test_a_step_that_repeats_the_one_before_says_so(batch_size: int | None) -> None:
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), batch_size=batch_size, local_epochs=3)
    steps = list(StepPlan.of(turns(training)).steps())
    assert steps[0].is_repeat is None
    assert [step.is_repeat for step in steps[1:]] == [
        one.has_same_rows(other) for one, other in pairwise(steps)
    ]
    assert any(step.is_repeat for step in steps) == (batch_size in (7, None))
