"""Corrections that define their hooks by the names of the last release: the same bytes, and one line."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD

import clients
from clients import Classification, Correction, GradientTransform, LocalTraining
from clients.correction import RENAMED
from clients.fast.trace import Step
from helpers.plain_loop import SEED, assert_equal, examples, perceptron, seeded


def halved(gradients: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    return [g / 2 for g in gradients]


def doubled(self: Correction, step: Step) -> Step:
    def twice(parameters: Sequence[Tensor], *batch: Any) -> Any:
        gradients, sums = step(parameters, *batch)
        return [2 * g for g in gradients], sums

    return twice


def shrunk(self: Correction, parameters: Sequence[Parameter]) -> None:
    for p in parameters:
        assert p.grad is not None
        p.grad.add_(p.detach(), alpha=0.1)


def squares(self: Correction, model: nn.Module, inputs: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.square().mean()


def third(self: Any, parameters: Sequence[Parameter]) -> bool:
    self.steps = getattr(self, "steps", 0) + 1
    return bool(self.steps == 3)


def reported(
    self: Correction, parameters: Sequence[Parameter], metrics: dict[str, float]
) -> dict[str, Any]:
    metrics["mine"] = 1.0
    return {}


HOOKS: dict[str, Callable[..., Any]] = {
    "term": squares,
    "around": doubled,
    "__call__": shrunk,
    "done": third,
    "finish": reported,
}
SETTINGS: dict[str, object] = {
    "starts_elsewhere": True,
    "alone": property(lambda self: True),
    "has_term": property(lambda self: True),
    "reads_way": classmethod(lambda cls, config: True),
    "edit": GradientTransform(halved, []),
    "asked_by": "mine",
}


def trained(kind: type[Correction]) -> tuple[nn.Module, dict[str, float]]:
    model, correction = seeded(perceptron), kind()
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), batch_size=8)
    metrics = training(
        model, examples(), Classification(), server_round=1, seed=SEED, corrections=[correction]
    )
    correction.on_round_end([*model.parameters()], metrics)
    return model, metrics


@pytest.mark.parametrize("old", [*HOOKS, "edit"])
def test_a_class_with_the_old_name_gives_the_same_bytes_and_one_line(
    old: str, caplog: pytest.LogCaptureFixture
) -> None:
    hook = HOOKS.get(old, SETTINGS.get(old))
    new = type("New", (Correction,), {RENAMED[old]: hook})
    assert not caplog.records
    before = type("Old", (Correction,), {old: hook})
    (line,) = caplog.messages
    assert line == f"Old: {old} is now {RENAMED[old]}; old names work in this release alone"
    (expected, metrics), (model, same) = trained(new), trained(before)
    assert_equal(model, expected)
    assert same == metrics
    plain, without = trained(Correction)
    moved = any(not torch.equal(a, b) for a, b in zip(plain.parameters(), model.parameters(), strict=True))
    assert moved or metrics != without  # the hook does something


def test_each_old_name_is_named_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    kind = type("All", (Correction,), {**HOOKS, **SETTINGS})
    (line,) = caplog.messages
    assert {*HOOKS, *SETTINGS} == {*RENAMED}
    for old, new in RENAMED.items():
        assert f"{old} is now {new}" in line
        assert vars(kind)[new] is vars(kind)[old]
    caplog.clear()
    type("Below", (kind,), {})
    assert not caplog.records


def test_an_edit_that_an_instance_sets(caplog: pytest.LogCaptureFixture) -> None:
    class Old(Correction):
        def __init__(self) -> None:
            self.edit = clients.Edit(halved, [])

    class New(Correction):
        def __init__(self) -> None:
            self.gradient_transform = GradientTransform(halved, [])

    assert_equal(trained(Old)[0], trained(New)[0])
    trained(Old)
    assert [message.split("; ")[0].rpartition(": ")[2] for message in caplog.messages] == [
        "edit is now gradient_transform"
    ]


def test_an_old_name_calls_what_the_class_below_has_by_the_new_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    new = type("New", (Correction,), {"on_round_end": reported})

    class Old(new):  # type: ignore[misc,valid-type]
        def finish(self, parameters: Any, metrics: dict[str, float]) -> Any:
            return {**super().finish(parameters, metrics), "more": None}

    metrics: dict[str, float] = {}
    assert Old().on_round_end([], metrics) == {"more": None}
    assert metrics == {"mine": 1.0}


@pytest.fixture(autouse=True)
def flower_s_log_is_seen(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.WARNING)
