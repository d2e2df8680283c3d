"""Nodes trained as one program against the same nodes one after another."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop

from baselines.grids.inline import InlineGrid
from clients import (
    Classification,
    Examples,
    Exponential,
    LeastSquares,
    LocalTraining,
    Node,
    Task,
    client_app,
)
from clients.batched.together import BatchedTrainer, ModelStack
from clients.fast import gradient as gradient_module
from clients.optimizers import RMSGD
from helpers.batched import CLASSES, FEATURES, SIZES, perceptron, same
from strategies.shared.arrays import view_values


def grids(
    make: Callable[[], nn.Module] = perceptron,
    task: Task | None = None,
    transforms: Mapping[int, Callable[[Tensor], Tensor]] | None = None,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    own_data: bool = False,
    **settings: Any,
) -> tuple[InlineGrid, InlineGrid]:
    """Return a grid whose nodes train one after another, and one whose nodes train together."""
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(sum(SIZES), FEATURES, generator=random)
    targets = torch.randint(CLASSES, (sum(SIZES),), generator=random)
    if isinstance(task, LeastSquares):
        targets = torch.randn(sum(SIZES), CLASSES, generator=random)
    rows = torch.randperm(sum(SIZES), generator=random).split(SIZES)
    torch.manual_seed(0)
    shared = make().eval()  # as an evaluation leaves it
    training = LocalTraining(**{"optimizer": partial(SGD, lr=0.1), "batch_size": 8} | settings)

    def node_of(message: Message, context: Context) -> Node:
        k = int(context.node_config["partition-id"])
        data = (inputs.clone() + k, targets.clone()) if own_data else (inputs, targets)
        train = Examples(*data, rows[k], (transforms or {}).get(k), augment)
        return Node(shared, training, task or Classification(), train, train, seed=7)

    app = client_app(node_of)
    return InlineGrid(app, len(SIZES)), InlineGrid(app, len(SIZES), BatchedTrainer(node_of))


def ask(grid: InlineGrid, make: Callable[[], nn.Module], server_round: int, **more: Any) -> list[Message]:
    """Let all nodes train from the round's own model; ``control`` also sends SCAFFOLD's c."""
    torch.manual_seed(server_round)
    start = make()
    records: dict[str, Any] = {"arrays": ArrayRecord(start.state_dict())}
    if "control-option" in more:
        shift = {name: 0.1 * torch.randn_like(p) for name, p in start.named_parameters()}
        records["control"] = ArrayRecord(shift)
    records["config"] = ConfigRecord({"server-round": server_round, **more})
    messages = [Message(RecordDict(records), node, "train") for node in grid.get_node_ids()]
    return grid.send_and_receive(messages)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sgd": ({}, {}),
    "momentum": ({"optimizer": partial(SGD, lr=0.05, momentum=0.9, weight_decay=0.01)}, {}),
    "adam": ({"optimizer": partial(Adam, lr=0.01), "local_epochs": 3}, {}),
    "amsgrad": ({"optimizer": partial(Adam, lr=0.01, amsgrad=True), "local_epochs": 2}, {}),
    "adamw": ({"optimizer": partial(AdamW, lr=0.01)}, {}),
    "adagrad": ({"optimizer": partial(Adagrad, lr=0.05)}, {}),
    "rmsprop": ({"optimizer": partial(RMSprop, lr=0.01, momentum=0.5)}, {}),
    "clipped": ({"max_grad_norm": 0.3, "local_epochs": 2}, {}),
    "steps": ({"local_epochs": None, "local_steps": 7}, {}),
    "whole": ({"batch_size": None, "local_epochs": 3}, {}),
    "large batch": ({"batch_size": 25, "local_epochs": 2}, {}),
    "decayed": ({"schedule": Exponential(gamma=0.5)}, {}),
    "proximal": ({"local_epochs": 2}, {"proximal-mu": 0.5}),
    "proximal, clipped": ({"max_grad_norm": 0.3}, {"proximal-mu": 0.5}),
    "gradient variance": ({}, {"gradient-variance": True}),
    "control variates, option 1": ({}, {"control-option": 1}),
    "control variates, option 2": ({"local_epochs": 2}, {"control-option": 2}),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("trace_after", [0, 200])
@pytest.mark.parametrize("case", CASES)
def test_each_nodes_result_is_its_own(
    case: str, trace_after: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gradient_module, "EAGER_STEPS_BEFORE_TRACE", trace_after)
    settings, config = CASES[case]
    alone, together = grids(**settings)
    for server_round in (1, 2):  # control variates live on from round to round
        replies = ask(together, perceptron, server_round, **config)
        for one, other in zip(ask(alone, perceptron, server_round, **config), replies, strict=True):
            same(one, other)
    assert together.answering.batched_trainer is not None
    assert not caplog.records


def test_least_squares_with_a_bias() -> None:
    def linear() -> nn.Module:
        return nn.Linear(FEATURES, CLASSES)

    alone, together = grids(linear, LeastSquares(1), optimizer=partial(SGD, lr=0.01), local_epochs=2)
    for one, other in zip(ask(alone, linear, 1), ask(together, linear, 1), strict=True):
        same(one, other)
    assert together.answering.batched_trainer is not None


def test_examples_that_do_not_change_are_gathered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = []
    raw = Examples.select_raw
    monkeypatch.setattr(
        Examples, "select_raw", lambda self, *which: gathered.append(which) or raw(self, *which)
    )
    _, together = grids(batch_size=None, local_epochs=3)
    for server_round in (1, 2):
        ask(together, perceptron, server_round)
    assert len(gathered) == 1


def test_examples_that_are_seen_differently_are_gathered_anew() -> None:
    transforms = dict.fromkeys(range(len(SIZES)), torch.neg)
    alone, together = grids(batch_size=None, transforms=transforms)
    for server_round in (1, 2):
        for one, other in zip(
            ask(alone, perceptron, server_round), ask(together, perceptron, server_round), strict=True
        ):
            same(one, other)
        transforms |= dict.fromkeys(transforms, torch.square)
    assert together.answering.batched_trainer is not None


@pytest.mark.parametrize("batch_size", [None, 8])
def test_each_node_sees_in_its_own_way(batch_size: int | None) -> None:
    """Two nodes may change places from round to round; one of them sees the data as they are."""
    transforms: dict[int, Callable[[Tensor], Tensor]] = {0: torch.neg, 2: torch.square, 3: torch.sin}
    alone, together = grids(batch_size=batch_size, transforms=transforms)
    for server_round in (1, 2, 3):
        for one, other in zip(
            ask(alone, perceptron, server_round), ask(together, perceptron, server_round), strict=True
        ):
            same(one, other)
        transforms[0], transforms[2] = transforms[2], transforms[0]
    assert together.answering.batched_trainer is not None


def test_a_stack_smaller_than_the_round_is_filled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.batched.together.MAX_STACK_PARAMETERS", 2 * 83)  # two perceptrons
    alone, together = grids()
    for one, other in zip(ask(alone, perceptron, 1), ask(together, perceptron, 1), strict=True):
        same(one, other)
    assert isinstance(together.answering.batched_trainer, BatchedTrainer)
    assert isinstance(together.answering.batched_trainer._stack, ModelStack)
    assert len(together.answering.batched_trainer._stack.places) == 2


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.LayerNorm(8), nn.Linear(8, CLASSES))


def counted() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8, track_running_stats=True), nn.Linear(8, CLASSES)
    )


def half_frozen() -> nn.Module:
    model = perceptron()
    next(model.parameters()).requires_grad_(False)
    return model


@pytest.mark.exhaustive
@pytest.mark.parametrize("trace_after", [0, 200])
def test_frozen_parameters_are_one_for_all(
    trace_after: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gradient_module, "EAGER_STEPS_BEFORE_TRACE", trace_after)
    alone, together = grids(half_frozen, local_epochs=2)
    for server_round in (1, 2, 3):  # each brings other values
        replies = ask(together, half_frozen, server_round)
        for one, other in zip(ask(alone, half_frozen, server_round), replies, strict=True):
            same(one, other)
    assert together.answering.batched_trainer is not None
    assert not caplog.records


def test_nodes_with_frozen_parameters_of_their_own_train_in_turn(caplog: pytest.LogCaptureFixture) -> None:
    _, together = grids(half_frozen)
    config = ConfigRecord({"server-round": 1})
    messages = [
        Message(
            RecordDict({"arrays": ArrayRecord(half_frozen().state_dict()), "config": config}), node, "train"
        )
        for node in together.get_node_ids()
    ]
    replies = together.send_and_receive(messages)
    assert not any(reply.has_error() for reply in replies)
    assert "frozen parameters of their own" in caplog.text
    for message, reply in zip(messages, replies, strict=True):
        sent, come = (m.content.array_records["arrays"]["0.weight"] for m in (message, reply))
        assert sent.data == come.data


def turned(inputs: Tensor) -> Tensor:
    return -inputs


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "dropout": ({"make": dropping}, "random"),
    "buffers": ({"make": counted}, "buffers"),
    "whole layers": ({"optimizer": partial(RMSGD, lr=0.1)}, "RMSGD"),
    "kept": ({"keep_optimizer": True}, "keep_optimizer"),
    "own data": ({"own_data": True}, "own"),
    "augmented": ({"augment": lambda inputs, draws: inputs + 1}, "augmented"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_be_batched_is_trained_in_turn_with_one_line(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings, reason = IMPOSSIBLE[case]
    if case == "buffers":
        settings["batch_size"] = None
    alone, together = grids(**settings)
    make = settings.get("make", perceptron)
    with caplog.at_level(logging.WARNING):
        for server_round in (1, 2):
            replies = ask(together, make, server_round)
            for one, other in zip(ask(alone, make, server_round), replies, strict=True):
                assert one.has_error() == other.has_error()
                if one.has_content():
                    first, second = one.content["arrays"], other.content["arrays"]
                    assert [a.data for a in first.values()] == [
                        a.data for a in second.values()
                    ]  # to the bit
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("nodes are not batched and train one after another")
    assert reason in line


def test_layer_norm_is_no_obstacle() -> None:
    alone, together = grids(normalised)
    for one, other in zip(ask(alone, normalised, 1), ask(together, normalised, 1), strict=True):
        same(one, other)
    assert together.answering.batched_trainer is not None


def test_a_node_that_fails_fails_alone_and_the_others_states_are_sound() -> None:
    broken = {k: (lambda inputs: inputs[:, :1]) if k == 2 else turned for k in range(len(SIZES))}
    alone, together = grids(transforms=broken)
    for server_round in (1, 2):
        replies = ask(together, perceptron, server_round, **{"control-option": 2})
        expected = ask(alone, perceptron, server_round, **{"control-option": 2})
        assert [reply.has_error() for reply in replies] == [k == 2 for k in range(len(SIZES))]
        for one, other in zip(expected, replies, strict=True):
            if one.has_content():
                same(one, other)


def test_nodes_that_diverge_do_so_in_both_ways() -> None:
    alone, together = grids(optimizer=partial(SGD, lr=1e30), local_epochs=3)
    sound = []
    for one, other in zip(ask(alone, perceptron, 1), ask(together, perceptron, 1), strict=True):
        first, second = one.content["arrays"].values(), other.content["arrays"].values()
        finite = [
            all(np.isfinite(view_values(array)).all() for array in arrays) for arrays in (first, second)
        ]
        assert finite[0] == finite[1]
        sound.append(finite[0])
    assert not all(sound)
