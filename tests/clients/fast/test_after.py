"""What comes after the gradient in a captured step, beside torch's own; a pretended graph keeps numbers."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Adam, Optimizer

from clients import Classification, Correction, LocalTraining, optimizer_step
from clients.fast import cuda_graphs
from clients.fast.gradient import CAPTURED, count_steps, steps_since
from clients.optimizer_step import (
    GradientPipeline,
    OptimizerStep,
    add_sgd_step,
    clip_gradients,
    log_uncaptured,
)
from helpers.plain_loop import SEED, examples, perceptron, seeded
from helpers.pretended_graph import pretended

RATES = (0.1, 0.05, 0.4, 0.2)  # another one in each step
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "decay": {"weight_decay": 0.1},
    "momentum": {"momentum": 0.9},
    "both": {"momentum": 0.9, "weight_decay": 0.1},
    "nesterov": {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
}


@pytest.fixture(autouse=True)
def _graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_step, "can_capture", lambda _: True)
    monkeypatch.setattr(cuda_graphs, "capture_graph", pretended)
    log_uncaptured.cache_clear()


def slope(parameters: Sequence[Tensor], batch: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
    return [2 * p + batch.sum() for p in parameters], {"loss": batch.sum()}


@pytest.mark.parametrize("limit", [None, 0.7], ids=["", "clipped"])
@pytest.mark.parametrize("settings", SETTINGS)
@torch.no_grad()
def test_a_round_of_captured_sgd_is_torchs_whatever_the_rates(settings: str, limit: float | None) -> None:
    ours, plain = ([Parameter(torch.tensor([1.0, -2.0])), Parameter(torch.tensor(3.0))] for _ in range(2))
    batches = [torch.tensor([float(k), 0.3]) for k in range(len(RATES))]
    steps = cuda_graphs.GraphCache()
    for _ in range(2):  # rounds; each begins with a fresh optimiser
        optimizer, other = (SGD(p, lr=9.0, foreach=False, **SETTINGS[settings]) for p in (ours, plain))
        after = add_sgd_step(
            GradientPipeline((), None if limit is None else clip_gradients, limit or 0.0), optimizer, ours
        )
        update = OptimizerStep(ours, optimizer, steps.begin(after))
        for rate, batch in zip(RATES, batches, strict=True):
            optimizer.param_groups[0]["lr"] = other.param_groups[0]["lr"] = rate
            step = steps.find("a step", slope, ours, [batch])
            assert step is not None
            update(step(ours, batch)[0])
            for p, gradient in zip(plain, slope(plain, batch)[0], strict=True):
                p.grad = gradient
            if limit is not None:
                torch.nn.utils.clip_grad_norm_(plain, limit)
            other.step()
            assert [p.tolist() for p in ours] == [p.tolist() for p in plain]


@pytest.mark.parametrize(
    "optimizer",
    [
        partial(Adam, lr=0.1),
        partial(SGD, lr=0.1, momentum=0.9, dampening=0.5),
        partial(SGD, lr=0.1, maximize=True),
    ],
)
def test_a_step_that_no_graph_can_repeat_is_left_to_the_optimiser_with_a_line(
    optimizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    parameters = [Parameter(torch.ones(2))]
    for _ in range(2):
        assert add_sgd_step(GradientPipeline(), optimizer(parameters), parameters) == GradientPipeline()
    (line,) = [record.message for record in caplog.records]
    assert line.startswith(f"the step of {optimizer.func.__name__} as it is configured is not part of")


def test_hooks_of_an_optimizer_are_called() -> None:
    calls: list[int] = []

    def hooked(parameters: list[Parameter]) -> Optimizer:
        optimizer = SGD(parameters, lr=0.1)
        optimizer.register_step_post_hook(lambda *_: calls.append(1))
        return optimizer

    assert trained(hooked)[CAPTURED]
    assert len(calls) == STEPS


def test_a_correction_of_ones_own_acts_outside_of_the_graph(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    class Counted(Correction):
        def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
            calls.append(1)

    with caplog.at_level(logging.WARNING, "flwr.clients"):
        assert trained(partial(SGD, lr=0.1), Counted())[CAPTURED]
    assert len(calls) == STEPS
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("what a correction does, and all that comes after it, is not part of")


STEPS = 8  # two epochs of four batches


def trained(optimizer: Any, *corrections: Correction) -> dict[str, int]:
    """Train a round; return how the steps were taken."""
    data = examples()
    training = LocalTraining(optimizer=optimizer, local_epochs=2, batch_size=-(-len(data) // 4))
    before = count_steps()
    training(
        *(seeded(perceptron), data, Classification()), server_round=1, seed=SEED, corrections=corrections
    )
    assert sum(steps_since(before).values()) == STEPS
    return steps_since(before)
