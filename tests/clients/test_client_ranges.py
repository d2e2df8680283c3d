"""The ends of every range on the node: the last value that is allowed, and the first that is not."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

from clients import Exponential, LocalTraining, StepDecay
from clients.augment import Augment
from clients.optimizers import RMSGD


def rmsgd(**settings: float) -> RMSGD:
    return RMSGD([nn.Parameter(torch.zeros(1))], **settings)


def training(**settings: Any) -> LocalTraining:
    return LocalTraining(**{"optimizer": partial(SGD, lr=0.1)} | settings)


Build = Callable[[Any], object]
RANGES: dict[str, tuple[Build, list[Any], list[Any]]] = {
    "gamma": (lambda x: Exponential(gamma=x), [1e-9, 1], [0, 1.001, -1]),
    "ahead": (lambda x: Exponential(ahead=x), [0, 1, 2], [-1, 0.5]),
    "steps' gamma": (lambda x: StepDecay(2, x), [1e-9, 1], [0, 1.001]),
    "every": (lambda x: StepDecay(x, 0.5), [1], [0, 1.5]),
    "padding": (lambda x: Augment(padding=x), [0, 1], [-1]),
    "cutout": (lambda x: Augment(cutout=x), [0, 1], [-1]),
    "norm": (lambda x: training(max_grad_norm=x), [None, 1e-9], [0, -1.0, float("nan")]),
    "batch": (lambda x: training(batch_size=x), [None, 1], [0, True]),
    "epochs": (lambda x: training(local_epochs=x), [1], [0, None]),
    "steps": (lambda x: training(local_epochs=None, local_steps=x), [1], [0, None]),
    "learning rate": (lambda x: training(optimizer=partial(SGD, lr=x)), [0.0, 1e-9], [-1.0, float("nan")]),
    "rmsgd's lr": (lambda x: rmsgd(lr=x), [1e-9], [0, -1]),
    "rmsgd's beta": (lambda x: rmsgd(beta=x), [0, 0.99], [-1e-9, 1]),
    "rmsgd's zeta": (lambda x: rmsgd(zeta=x), [1e-9], [0, -1]),
    "rmsgd's momentum": (lambda x: rmsgd(momentum=x), [0, 0.99], [-1e-9, 1]),
    "rmsgd's decay": (lambda x: rmsgd(weight_decay=x), [0, 2], [-1e-9]),
}


@pytest.mark.parametrize("case", RANGES)
def test_both_sides_of_each_end(case: str) -> None:
    build, allowed, refused = RANGES[case]
    for value in allowed:
        build(value)
    for value in refused:
        with pytest.raises(ValueError):
            build(value)


@pytest.mark.parametrize(
    ("batch_size", "epochs", "steps"),
    [(1, 1, 7), (3, 1, 3), (3, 2, 6), (6, 1, 2), (7, 2, 2), (8, 2, 2), (None, 3, 3)],
)
def test_how_many_steps_seven_examples_make(batch_size: int | None, epochs: int, steps: int) -> None:
    local = training(batch_size=batch_size, local_epochs=epochs)
    assert local.steps(7) == steps
    assert local.is_full_batch(7) == (batch_size is None or batch_size >= 7)
    places = list(local.positions(7, torch.Generator().manual_seed(0)))
    assert len(places) == steps
    per_epoch = steps // epochs
    for epoch in range(epochs):
        taken = places[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(torch.cat(taken).tolist()) == list(range(7))
        assert [len(each) for each in taken[:-1]] == [batch_size] * (per_epoch - 1)


@pytest.mark.parametrize("steps", [1, 3, 4, 8])
def test_so_many_local_steps_whatever_the_size(steps: int) -> None:
    local = training(batch_size=3, local_epochs=None, local_steps=steps)
    assert local.steps(7) == local.steps(100) == steps
    assert len(list(local.positions(7, torch.Generator().manual_seed(0)))) == steps
