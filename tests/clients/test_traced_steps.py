"""The traced step: the same bits, whatever the model."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d
from torch.optim import SGD

from clients import Classification
from clients.fast import gradient as gradient_module
from clients.fast.gradient import RECORDED
from helpers.noting import noting
from helpers.plain_loop import (
    CLASSES,
    FEATURES,
    SIZE,
    Make,
    assert_equal,
    by_hand,
    examples,
    perceptron,
    seeded,
    train,
)


def convolutional() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 3, 2)
            self.out = nn.Linear(3, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(max_pool2d(self.conv(x.view(-1, 1, 2, 3)).relu(), (1, 2)).flatten(1))

    return Net()


def with_inplace_relu() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(inplace=True), nn.Linear(8, CLASSES))


def with_a_change_of_its_inputs() -> nn.Module:
    return nn.Sequential(nn.ReLU(inplace=True), nn.Linear(FEATURES, CLASSES))


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.4), nn.Linear(8, CLASSES))


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES))


def with_a_branch() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(FEATURES, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x) if x[0, 0] > 0 else -self.fc(x)

    return Net()


def with_a_spare_parameter() -> nn.Module:
    class Net(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(FEATURES, CLASSES))
            self.spare = nn.Parameter(torch.ones(4))

    return Net()


@pytest.mark.parametrize(
    ("make", "traced"),
    [
        (perceptron, True),
        (with_a_spare_parameter, True),
        (convolutional, True),
        (with_inplace_relu, True),
        (with_a_change_of_its_inputs, False),
        (with_dropout, False),
        (with_batch_norm, False),
        (with_a_branch, False),
    ],
)
@pytest.mark.parametrize("batch_size", [16, None], ids=["batches", "full"])
def test_many_steps_equal_the_plain_loop(
    make: Make, traced: bool, batch_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient_module, "EAGER_STEPS_BEFORE_TRACE", 3)
    gradient_module.get_gradient.cache_clear()
    ours, plain, data = seeded(make), seeded(make), examples()
    optimizer = partial(SGD, lr=0.05, momentum=0.5)
    train(ours, data, optimizer=optimizer, local_epochs=12, batch_size=batch_size)
    by_hand(plain, data, optimizer(plain.parameters()), epochs=12, batch_size=batch_size or SIZE)
    assert_equal(ours, plain)
    used = gradient_module.get_gradient(ours, Classification())
    assert used._steps
    assert all((way == RECORDED) == traced for way, _ in used._steps.values())


def test_a_parameter_may_be_frozen_and_set_free_between_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_module, "EAGER_STEPS_BEFORE_TRACE", 3)
    gradient_module.get_gradient.cache_clear()
    ours, plain, data, optimizer = seeded(perceptron), seeded(perceptron), examples(), partial(SGD, lr=0.05)
    for free in (True, False, True):
        for model in (ours, plain):
            next(model.parameters()).requires_grad_(free)
        train(ours, data, optimizer=optimizer, local_epochs=2, batch_size=16)
        by_hand(
            plain,
            data,
            optimizer([p for p in plain.parameters() if p.requires_grad]),
            epochs=2,
            batch_size=16,
        )
    assert_equal(ours, plain)


def test_a_traced_step_follows_the_parameters() -> None:
    """The parameters that were there when it was traced are not part of it."""
    gradient = gradient_module.Gradient(seeded(perceptron), Classification())
    x, y = torch.randn(9, FEATURES), torch.randint(CLASSES, (9,))
    parameters = [p.detach() for p in gradient.model.parameters()]
    traced = gradient._trace(parameters, x, y)
    with torch.no_grad():
        for p in gradient.model.parameters():
            p.mul_(-2)
    with torch.no_grad():
        own = list(gradient.model.parameters())
        expected, sums = gradient._eager(own, x, y)
        actual, traced_sums = traced(own, x, y)
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    assert all(torch.equal(traced_sums[name], sums[name]) for name in sums)
    assert float(sums["loss"]) > 0


def test_images_of_another_size_are_another_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their targets are alike; each size is recorded by itself."""
    monkeypatch.setattr(gradient_module, "EAGER_STEPS_BEFORE_TRACE", 2)
    model = seeded(lambda: nn.Sequential(nn.Conv2d(1, CLASSES, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    step = gradient_module.Gradient(model, Classification()).for_round(trace=True)
    parameters, y = list(model.parameters()), torch.arange(6) % CLASSES
    for pixels in (4, 3) * 4:
        x = torch.randn(6, 1, pixels, pixels, generator=torch.Generator().manual_seed(pixels))
        loss, _ = Classification()(model(x), y)
        expected = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            actual, _ = step(parameters, x, y)
        assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


def test_a_step_is_recorded_and_compared_without_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_module, "EAGER_STEPS_BEFORE_TRACE", 1)
    seen: list[bool] = []
    model, data = perceptron(), examples()
    gradient = gradient_module.Gradient(model, noting(seen)).for_round(trace=True)
    with torch.no_grad():
        for _ in range(4):
            gradient(list(model.parameters()), *data.batch(slice(None), torch.device("cpu")))
    assert seen == [True, False, False]  # eager; eager beside the recording; the recording replays itself
