"""What a node answers to a question before a round: its measures by hand, and on the rows that it draws."""

from functools import partial

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from torch import Tensor, nn
from torch.optim import SGD

from baselines.grids.inline import InlineGrid
from clients import Classification, Examples, LocalTraining, Node, client_app
from clients.measures import measure_node
from clients.methods.oort import SquaredLoss, mean_squared_loss
from clients.round import requested_corrections
from strategies.shared import protocol
from strategies.shared.seeding import Purpose, generator

LABELS = torch.tensor([0, 0, 1, 1, 0])
INPUTS = torch.tensor([[2.0], [-1.0], [0.5], [3.0], [0.0]])


class Scale(nn.Module):
    """Logits (w x, 0): the loss of label 0 is log(1 + exp(-w x)), of label 1 log(1 + exp(w x))."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.5))
        self.drop = nn.Dropout(0.5)  # a measure is taken in evaluation mode

    def forward(self, x: Tensor) -> Tensor:
        scaled = self.drop(self.w * x)
        return torch.cat([scaled, torch.zeros_like(scaled)], 1)


def losses(w: float = 1.5) -> np.ndarray:
    """Return each example's loss by the formula."""
    signs = np.where(LABELS.numpy() == 0, -1.0, 1.0)
    return np.log1p(np.exp(signs * w * INPUTS.numpy()[:, 0].astype(float)))


def node(batch_size: int | None = 2, count: int = 5) -> Node:
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), batch_size=batch_size)
    examples = Examples(INPUTS, LABELS, torch.arange(count))
    return Node(Scale(), training, Classification(), examples, examples, seed=3)


def grid(one: Node, **config: object) -> InlineGrid:
    made = InlineGrid(client_app(lambda message, context: one), 1)
    made.context(made.get_node_ids()[0]).node_config.update(config)  # type: ignore[arg-type]
    return made


def ask(made: InlineGrid, kind: str = protocol.QUESTION, **config: object) -> Message:
    content_config = {protocol.SERVER_ROUND: 4, protocol.MEASURES: ["start-loss", "squared-loss"], **config}
    arrays = ArrayRecord({"w": torch.tensor(0.7)})  # type: ignore[arg-type]
    content = RecordDict({"arrays": arrays, "config": ConfigRecord(content_config)})  # type: ignore[arg-type]
    (reply,) = made.send_and_receive([Message(content, made.get_node_ids()[0], kind)])
    return reply


@pytest.mark.parametrize("batch_size", [1, 2, 5, None])
def test_measures_are_those_of_the_formula(batch_size: int | None) -> None:
    one = node(batch_size)
    got = measure_node(one, one.train, ("start-loss", "squared-loss", "accuracy"))
    assert got["start-loss"] == pytest.approx(losses().mean(), rel=1e-6)
    assert got["squared-loss"] == pytest.approx((losses() ** 2).mean(), rel=1e-6)
    assert got["accuracy"] == pytest.approx(2 / 5)  # of rows 0 and 4, whose logits are equal
    assert got["squared-loss"] != pytest.approx(got["start-loss"] ** 2, rel=0.05)


def test_the_answer_is_at_the_model_that_was_sent() -> None:
    one = node()
    metrics = ask(grid(one)).content["metrics"]
    assert metrics["start-loss"] == pytest.approx(losses(0.7).mean(), rel=1e-6)
    assert dict(metrics).keys() == {"start-loss", "squared-loss", "num-examples", "partition-id"}
    assert (metrics["num-examples"], metrics["partition-id"]) == (5, 0)


def test_a_question_on_some_examples_draws_them_by_seed_round_and_partition() -> None:
    rows = generator(3, Purpose.QUESTION, server_round=4, partition_id=0).choice(5, 2, replace=False)
    metrics = ask(grid(node()), **{protocol.MEASURED_EXAMPLES: 2}).content["metrics"]
    assert metrics["start-loss"] == pytest.approx(losses(0.7)[rows].mean(), rel=1e-6)
    assert metrics["num-examples"] == 5
    whole = ask(grid(node()), **{protocol.MEASURED_EXAMPLES: 9}).content["metrics"]
    assert whole["start-loss"] == pytest.approx(losses(0.7).mean(), rel=1e-6)


def test_a_node_without_examples_measures_nothing() -> None:
    assert dict(ask(grid(node(count=0))).content["metrics"]) == {"num-examples": 0, "partition-id": 0}


def test_what_no_node_measures_is_named() -> None:
    reply = ask(grid(node()), **{protocol.MEASURES: ["lost"]})
    assert "asks for 'lost': expected one of accuracy, loss, squared-loss, start-loss" in reply.error.reason


@pytest.mark.parametrize(
    ("key", "value"), [("privacy", "central"), ("privacy", "local"), ("min-noise", 0.5)]
)
def test_a_node_that_demands_privacy_answers_none(key: str, value: object) -> None:
    """Whatever the message promises: an answer has no noise."""
    promised = {protocol.PRIVACY: "local", protocol.PRIVACY_NOISE: 9.0, protocol.PRIVACY_CLIP: 1.0}
    reply = ask(grid(node(), **{key: value}), **promised)
    assert "answers no question before a round" in reply.error.reason


def test_the_correction_reports_the_same_as_the_question() -> None:
    assert requested_corrections({"squared-loss": True}) == [SquaredLoss]
    made = grid(node())
    answer = ask(made).content["metrics"]["squared-loss"]
    trained = ask(made, "train", **{protocol.SQUARED_LOSS: True}).content["metrics"]["squared-loss"]
    assert trained == answer


def test_the_question_leaves_a_node_as_it_was() -> None:
    """Training after an answer is training without one."""
    questioned, plain = grid(node()), grid(node())
    ask(questioned)
    assert len(questioned.context(questioned.get_node_ids()[0]).state) == 0
    after, expected = (ask(one, "train").content["arrays"]["w"].data for one in (questioned, plain))
    assert after == expected


def test_several_outputs_have_a_loss_of_each_example() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor(1.5))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.w * x, torch.zeros_like(x)

    class Joined(Classification):
        def __call__(self, outputs, targets, present=None):  # type: ignore[no-untyped-def]
            return super().__call__(torch.cat(outputs, 1), targets, present)

    examples = Examples(INPUTS, LABELS, torch.arange(5))
    got = mean_squared_loss(Two(), examples, Joined(), 2)
    assert got == pytest.approx((losses() ** 2).mean(), rel=1e-6)
