"""What nodes that train together must not pass over: each node's result is its own, or it trains alone."""

import copy
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import MethodType
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Optimizer

from baselines.experiment.device import prepare_model
from clients import Classification, Correction, Examples, LocalTraining, Node, Proximal, RoundStart
from clients.fast import gradient as gradient_module
from clients.fast.trace import Step
from helpers.batched import CLASSES, CPU, FEATURES, Change, Flipped, ask, grids, perceptron, played
from strategies.shared.arrays import view_values


def closed_over() -> nn.Module:
    model = perceptron()
    forward = model.forward
    model.forward = lambda inputs: 2 * forward(inputs)  # type: ignore[assignment]
    return model


def bound() -> nn.Module:
    model = perceptron()
    model.forward = MethodType(lambda self, inputs: 2 * type(self).forward(self, inputs), model)  # type: ignore[assignment]
    return model


class Keeping(nn.Module):
    """Asks ``factor`` what to multiply by."""

    def __init__(self, factor: Callable[["Keeping"], float]) -> None:
        super().__init__()
        self.fc, self.factor, self.p, self.t = nn.Linear(FEATURES, CLASSES), factor, 1.0, 0

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * self.factor(self)


def counted(model: Keeping) -> float:
    model.t += 1
    return 1 / model.t


def drawn(model: Keeping) -> float:
    return random.choice([1.0, -1.0])


@dataclass(frozen=True, kw_only=True)
class Dynamic(LocalTraining):
    """A loop of the user's own."""

    def __call__(self, model: nn.Module, *args: Any, **more: Any) -> dict[str, float]:
        metrics = super().__call__(model, *args, **more)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0.5)
        return metrics


@dataclass(frozen=True, kw_only=True)
class Half(LocalTraining):
    """Batches of the user's own."""

    def batches(self, examples: Examples, *rest: Any) -> Any:
        return ((inputs / 2, targets) for inputs, targets in super().batches(examples, *rest))


@dataclass(frozen=True, kw_only=True)
class Named(LocalTraining):
    """Nothing but another name and a setting."""

    note: str = ""


@dataclass(frozen=True)
class Doubled(Examples):
    """Rows of the user's own."""

    def batch(self, *args: Any) -> tuple[Tensor, Tensor]:
        inputs, targets = super().batch(*args)
        return 2 * inputs, targets


@dataclass(frozen=True)
class Deaf(Classification):
    """A task that does not hear which rows are there."""

    def __call__(
        self, outputs: Tensor, targets: Tensor, present: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return super().__call__(outputs, targets)


def hooked(parameters: list[Parameter]) -> Optimizer:
    optimizer = SGD(parameters, lr=0.1)
    optimizer.register_step_post_hook(lambda *_: [p.data.mul_(0.9) for p in parameters] and None)  # type: ignore[arg-type]
    return optimizer


def with_training(kind: type[LocalTraining]) -> Change:
    training = kind(optimizer=partial(SGD, lr=0.1), batch_size=8)
    return lambda node, k: replace(node, training=training)


def with_optimizer(*builders: Callable[[list[Parameter]], Optimizer]) -> Change:
    trainings = [LocalTraining(optimizer=builder, batch_size=8) for builder in builders]
    return lambda node, k: replace(node, training=trainings[k % len(trainings)])


def with_rows_of_their_own(node: Node, k: int) -> Node:
    return replace(node, train=Doubled(node.train.inputs, node.train.targets, node.train.index))


@dataclass(frozen=True)
class Halved(Classification):
    """Half the loss."""

    def __call__(self, *args: Any) -> tuple[Tensor, dict[str, Tensor]]:
        loss, sums = super().__call__(*args)
        return loss / 2, sums


class Pulled(Correction):
    """Pulls the outputs to 0."""

    def __init__(self, start: RoundStart) -> None:
        """Need nothing of the round."""

    def loss_term(self, model: nn.Module, inputs: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().mean()


class Elsewhere(Pulled):
    """Takes half the gradient."""

    loss_term = Correction.loss_term

    def wrap_gradient(self, step: Step) -> Step:
        def half(*given: Any) -> Any:
            gradients, sums = step(*given)
            return [g / 2 for g in gradients], sums

        return half


def with_correction(kind: type[Correction]) -> Change:
    same: list[LocalTraining] = []  # one for all nodes

    def change(node: Node, k: int) -> Node:
        if k == 0:
            same[:] = [replace(node.training, corrections={"one": kind})]
        return replace(node, training=same[0])

    return change


ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "a closure for a forward pass": ({"make": closed_over}, "its own forward"),
    "a counter": ({"make": partial(Keeping, counted)}, "changes its own attributes"),
    "Python draws": ({"make": partial(Keeping, drawn)}, "draws random numbers"),
    "a loop": ({"change": with_training(Dynamic)}, "Dynamic has its own __call__"),
    "batches": ({"change": with_training(Half)}, "Half has its own batches"),
    "examples": ({"change": with_rows_of_their_own}, "Doubled has its own batch"),
    "a hook": ({"change": with_optimizer(hooked)}, "SGD has hooks"),
    "two trainings": (
        {"change": with_optimizer(partial(SGD, lr=0.1), partial(SGD, lr=0.2))},
        "differently",
    ),
    "two tasks": (
        {"change": lambda node, k: replace(node, task=[Classification(), Halved()][k % 2])},
        "tasks of their own",
    ),
    "two models": (
        {"change": lambda node, k: replace(node, model=copy.deepcopy(node.model)) if k else node},
        "models of their own",
    ),
    "a task for whole batches": (
        {"change": lambda node, k: replace(node, task=Deaf())},
        "is not that of each node",
    ),
    "a term": ({"change": with_correction(Pulled)}, "adds to the loss"),
    "a gradient elsewhere": ({"change": with_correction(Elsewhere)}, "takes the gradient elsewhere"),
    "two rounds": ({"configs": {1: {"server-round": 2}}}, "nodes are in different rounds"),
}


@pytest.mark.parametrize("case", ALONE)
def test_what_would_be_passed_over_is_trained_in_turn(case: str, caplog: pytest.LogCaptureFixture) -> None:
    settings, reason = ALONE[case]
    with caplog.at_level(logging.WARNING):
        together = played(**settings)
    assert not together
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("nodes are not batched and train one after another")
    assert reason in line


def test_a_model_that_begins_to_count_later_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    """The first step of each shape shows nothing."""
    seen = [0]

    def factor(model: Keeping) -> float:
        seen[0] += 1
        model.t += seen[0] > 7
        return 1 / (1 + model.t)

    shared, _, together = grids(partial(Keeping, factor))
    ask(together, ArrayRecord(shared.state_dict()), 1, {})
    assert together.answering.batched_trainer is None
    assert "changes its own attributes" in caplog.text


def cast() -> nn.Module:
    return prepare_model(perceptron(), CPU, "bfloat16", False)


def cast_bound() -> nn.Module:
    return prepare_model(bound(), CPU, "bfloat16", False)


@pytest.mark.exhaustive
@pytest.mark.parametrize("trace_after", [0, 200])
@pytest.mark.parametrize("make", [bound, partial(Keeping, lambda model: model.p)])
def test_what_moves_with_a_copy_is_no_obstacle(
    make: Callable[[], nn.Module], trace_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient_module, "EAGER_STEPS_BEFORE_TRACE", trace_after)
    assert played(make)
    assert played(make, with_training(Named))


def test_a_schedule_of_an_attribute_reaches_the_copies() -> None:
    def set_p(model: nn.Module, server_round: int) -> None:
        model.p = 1 / server_round  # type: ignore[assignment]

    assert played(partial(Keeping, lambda model: model.p), before=set_p)


def test_a_correction_that_only_later_nodes_are_asked_for() -> None:
    assert played(configs={k: {"proximal-mu": 0.5} for k in (1, 3)})


def test_corrections_of_the_configuration_may_put_another_gradient_in_place() -> None:
    corrections = {"flipped": Flipped, "proximal": partial(Proximal, mu=0.5)}
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), batch_size=8, corrections=corrections)
    assert played(change=lambda node, k: replace(node, training=training))


@pytest.mark.exhaustive
@pytest.mark.parametrize("trace_after", [0, 200])
@pytest.mark.parametrize(("make", "exact"), [(cast, perceptron), (cast_bound, bound)])
def test_nodes_train_together_in_bfloat16(
    make: Callable[[], nn.Module],
    exact: Callable[[], nn.Module],
    trace_after: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another order of summation, rounded to 8 bits, costs no more than twice the rounding itself."""
    monkeypatch.setattr(gradient_module, "EAGER_STEPS_BEFORE_TRACE", trace_after)
    shared, alone, together = grids(make)
    start = ArrayRecord(shared.state_dict())
    one, other, right = (
        torch.stack([flat(reply.content["arrays"]) - flat(start) for reply in ask(grid, start, 1, {})])  # type: ignore[arg-type]
        for grid in (alone, together, grids(exact)[1])
    )
    assert together.answering.batched_trainer is not None
    assert 0 < (one - right).norm() < 0.2 * right.norm()
    assert (other - one).norm() < 2 * (one - right).norm()


def flat(arrays: ArrayRecord) -> Tensor:
    return torch.cat([torch.from_numpy(view_values(array).copy()).flatten() for array in arrays.values()])
