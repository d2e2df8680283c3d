"""Nodes that are sent several models: which one they choose, train and are evaluated with."""

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from torch import nn
from torch.optim import SGD

from baselines.grids.inline import InlineGrid
from clients import (
    Classification,
    Correction,
    Examples,
    Frozen,
    LeastLoss,
    LocalTraining,
    Node,
    RoundStart,
    client_app,
)
from helpers.plain_loop import start_of
from strategies.shared import protocol

# One input of value 1: the bias alone decides the class that a model of these takes it for.
X, Y = torch.ones(4, 1), torch.tensor([0, 0, 0, 1])


def model(*bias: float) -> nn.Linear:
    made = nn.Linear(1, 2)
    with torch.no_grad():
        made.weight.zero_()
        made.bias.copy_(torch.tensor(bias or (0.0, 0.0)))
    return made


def record(made: nn.Module) -> ArrayRecord:
    return ArrayRecord(made.state_dict())


class Farthest(Correction):
    """Chooses the model with the largest first bias; out of range where it is told so."""

    config_key: ClassVar[str] = "farthest"

    def __init__(self, start: RoundStart) -> None:
        pass

    @staticmethod
    def choose_model(start: RoundStart, models: Iterable[nn.Module]) -> int:
        biases = [float(model.bias.detach()[0]) for model in models]  # type: ignore[index, arg-type]
        return biases.index(max(biases)) + int(start.config["farthest"]) - 1  # type: ignore[arg-type]


def grid(shared: nn.Module, frozen: Frozen | None = None, **settings: Any) -> InlineGrid:
    """Return two nodes: the first has three examples of class 0, the second one of class 1."""
    training = LocalTraining(**{"optimizer": partial(SGD, lr=0.1), "batch_size": None, **settings})

    def node_of(message: Message, context: Context) -> Node:
        rows = [torch.arange(3), torch.arange(3, 4)][int(context.node_config["partition-id"])]
        examples = Examples(X, Y, rows)
        known = (LeastLoss, Farthest)
        return Node(
            shared, training, Classification(), examples, examples, frozen=frozen, known_corrections=known
        )

    return InlineGrid(client_app(node_of), 2)


def ask(
    nodes: InlineGrid, kind: str, models: list[ArrayRecord], server_round: int = 1, **config: Any
) -> list[Message]:
    message_config = {protocol.SERVER_ROUND: server_round, protocol.NUM_MODELS: len(models), **config}
    records = {protocol.model_key(number): arrays for number, arrays in enumerate(models)}
    content = RecordDict({**records, protocol.CONFIG: ConfigRecord(message_config)})
    return nodes.send_and_receive([Message(content, node, kind) for node in nodes.get_node_ids()])


def metrics_of(reply: Message) -> MetricRecord:
    assert reply.has_content(), reply.error
    return reply.content.metric_records[protocol.METRICS]


MODELS = [record(model(0, 2)), record(model(3, 0)), record(model(0, 1))]


def test_each_node_trains_the_model_with_the_least_loss_on_its_examples() -> None:
    """Softmax of (3, 0) is best for class 0, that of (0, 2) for class 1; a step is 0.1 (1 - p) for the class."""
    replies = ask(grid(model()), "train", MODELS)
    assert [metrics_of(reply)[protocol.CHOSEN_MODEL] for reply in replies] == [1, 0]
    for reply, bias, own in zip(replies, [(3.0, 0.0), (0.0, 2.0)], [0, 1], strict=True):
        p = np.exp(bias[own]) / np.exp(bias).sum()
        expected = np.array(bias)
        expected[own] += 0.1 * (1 - p)
        expected[1 - own] -= 0.1 * (1 - p)
        np.testing.assert_allclose(reply.content["arrays"]["bias"].numpy(), expected, rtol=1e-6)


def test_each_node_is_evaluated_with_the_one_that_it_chooses() -> None:
    for reply, bias, own in zip(
        ask(grid(model()), "evaluate", MODELS), [(3, 0), (0, 2)], [0, 1], strict=True
    ):
        loss = -np.log(np.exp(bias[own]) / np.exp(bias).sum())
        assert metrics_of(reply)["loss"] == pytest.approx(loss, rel=1e-6)
        assert metrics_of(reply)["accuracy"] == 1


def test_one_model_is_trained_as_if_nobody_had_asked() -> None:
    plain, one = (
        ask(grid(model()), "train", MODELS[:1]),
        ask(grid(model()), "train", MODELS[:1], **{protocol.NUM_MODELS: 1}),
    )
    for a, b in zip(plain, one, strict=True):
        assert a.content["arrays"]["bias"].data == b.content["arrays"]["bias"].data
        assert metrics_of(b)[protocol.CHOSEN_MODEL] == 0


def choices(models: list[nn.Module], seeds: Iterable[int]) -> list[int]:
    start = start_of(model())
    data = Examples(X, Y, torch.arange(3))
    return [
        LeastLoss.choose_model(
            RoundStart(
                start.model,
                data,
                start.task,
                start.optimizer,
                1,
                None,
                RecordDict(),
                RecordDict(),
                0,
                None,
                seed,
            ),
            models,
        )
        for seed in seeds
    ]


def test_equal_models_are_drawn_by_the_seed_and_a_loss_that_is_no_number_is_never_chosen() -> None:
    drawn = choices([model(0, 2), model(3, 0), model(3, 0)], range(20))
    assert set(drawn) == {1, 2}
    assert drawn == choices([model(0, 2), model(3, 0), model(3, 0)], range(20))
    assert set(choices([model(float("nan"), 0), model(0, 2)], range(3))) == {1}


def test_the_seed_the_round_and_the_partition_decide_between_equal_models() -> None:
    models = [MODELS[1]] * 2
    draws = [
        [metrics_of(reply)[protocol.CHOSEN_MODEL] for reply in ask(grid(model()), "train", models, t)]
        for t in range(1, 9)
    ]
    again = [metrics_of(reply)[protocol.CHOSEN_MODEL] for reply in ask(grid(model()), "train", models, 3)]
    assert draws[2] == again
    assert {0, 1} == {number for both in draws for number in both}
    assert any(a != b for a, b in draws)


def test_private_layers_are_in_their_place_when_a_node_chooses() -> None:
    """With the bias its own, in round 2 the weights alone differ: the first model's fit each node's own."""

    def weighted(*weight: float) -> ArrayRecord:
        made = model()
        with torch.no_grad():
            made.weight.copy_(torch.tensor(weight).unsqueeze(1))
        return record(made)

    nodes = grid(model(), private=["bias"])
    ask(nodes, "train", [weighted(0, 0), weighted(0, 0)])  # biases become (+, -), and (-, +)
    strong = record(model(9, -9))  # its bias would fit the first node, and does not count
    replies = ask(nodes, "train", [strong, weighted(1, 0)], 2)
    assert [metrics_of(reply)[protocol.CHOSEN_MODEL] for reply in replies] == [1, 0]


def test_the_other_models_lack_what_is_frozen() -> None:
    shared = model(3, 0)
    shared.weight.requires_grad_(False)
    frozen = Frozen.of(shared)
    assert frozen is not None
    alone = [ArrayRecord({"bias": torch.tensor(bias)}) for bias in ([0.0, 2.0], [3.0, 0.0])]
    replies = ask(grid(shared, frozen), "train", alone, **{protocol.FROZEN: frozen.hash})
    assert [metrics_of(reply)[protocol.CHOSEN_MODEL] for reply in replies] == [1, 0]
    assert all(list(reply.content["arrays"]) == ["bias"] for reply in replies)


def test_a_choice_of_ones_own_comes_before_the_usual() -> None:
    replies = ask(grid(model()), "train", MODELS, farthest=1)
    assert [metrics_of(reply)[protocol.CHOSEN_MODEL] for reply in replies] == [1, 1]
    replies = ask(grid(model()), "train", MODELS, farthest=3)
    line = "Farthest.choose_model returns 3: expected 0 to 2"
    assert all(reply.has_error() and line in str(reply.error.reason) for reply in replies)


def test_a_model_is_left_as_it_is_chosen() -> None:
    """Weighing the models must leave nothing behind, neither in them nor in what is drawn afterwards."""
    shared = model()
    first = ask(grid(shared), "train", MODELS)
    alone = ask(grid(model()), "train", [MODELS[1]])
    assert first[0].content["arrays"]["bias"].data == alone[0].content["arrays"]["bias"].data
