"""What a user's own parts give: weights, a step size, a direction. What is none fails the round by name."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from helpers.federation import assert_same, record
from helpers.hostile import difference, played, start
from strategies import (
    AgreementMask,
    Constant,
    FedAdam,
    FedAvg,
    ServerOptimizer,
    StepSize,
    TooManyFailedRounds,
    Uniform,
    Updates,
    Weighting,
)

Weights = Callable[[int], Tensor]
NAN, INF = float("nan"), float("inf")
FAULTS: dict[str, tuple[object, str]] = {
    "nan": (torch.tensor([0.5, 0.5, NAN, 0.0]), "partition 2 a weight that is NaN or infinite"),
    "infinite": (torch.tensor([0.5, INF, 0.5, 0.0]), "partition 1 a weight that is NaN or infinite"),
    "in a layer": (
        torch.tensor([[0.25] * 4] * 3 + [[0.25, 0.25, NAN, 0.25]]),
        "partition 3 a weight that is",
    ),
    "negative": (torch.tensor([0.5, -1.0, 0.0, 0.0]), "weights that sum to -0.5, expected 1"),
    "none": (torch.zeros(4), "weights that sum to 0, expected 1"),
    "a layer without": (torch.tensor([[0.25, 0.25, 0.0, 0.25]] * 4), "weights that sum to 0, expected 1"),
    "too few": (torch.ones(3) / 3, "weights of shape (3,), expected (4,) or (4, 4)"),
    "one": (torch.tensor(1.0), "weights of shape (), expected (4,) or (4, 4)"),
    "turned": (torch.ones(1, 4) / 4, "weights of shape (1, 4), expected (4,) or (4, 4)"),
    "a list": ([0.25] * 4, "a list, expected a tensor"),
}


@dataclass(frozen=True)
class Mine(Weighting):
    """Sound weights, but for one round."""

    faulty: object
    when: tuple[int, ...] = (2,)

    def __call__(self, updates: Updates, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        count = int(state.get("count", torch.tensor(0))) + 1
        sound, _ = Uniform()(updates, {})
        weights = self.faulty if count in self.when else sound
        return weights, {"count": torch.tensor(count)}  # type: ignore[return-value]


@pytest.mark.parametrize(("faulty", "why"), FAULTS.values(), ids=FAULTS)
def test_the_round_fails_by_name_and_leaves_all_as_it_was(
    faulty: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = FedAdam(weighting=Mine(faulty), mask=AgreementMask())
    sound = played(FedAdam(weighting=Mine(None, ()), mask=AgreementMask()), list, 1)
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        first, second = played(strategy, list, 2)
    assert not difference([first], sound)
    assert_same(second[0], first[0])
    assert "step-size" not in second[1]
    assert strategy.state_dict()["weighting"]["count"] == 1
    (line,) = [r.getMessage() for r in caplog.records if r.name == "flwr.strategies"]
    assert line == f"round 2: weighting=Mine gave {line.partition(' gave ')[2]}"
    assert why in line


def test_too_many_such_rounds_end_the_run() -> None:
    with pytest.raises(
        TooManyFailedRounds, match="3 rounds in a row failed: weighting=Mine gave partition 0"
    ):
        played(FedAvg(weighting=Mine(torch.full((4,), NAN), (1,))), list, 4)


def test_a_step_size_that_is_none_fails_the_round_too(caplog: pytest.LogCaptureFixture) -> None:
    class Lost(StepSize):
        def __call__(self, *of_the_round: object) -> float:
            return NAN

    ((model, metrics),) = played(FedAvg(step_size=Lost()), list, 1)
    assert_same(model, record(start()))
    assert "step-size" not in metrics
    assert "round 1: step_size=Lost gave nan: the model stays as it was" in caplog.text


GIVEN = {
    "None": (None, "gave None, expected a number"),
    "a text": ("far", "gave a str, expected a number"),
    "several": (
        torch.ones(3),
        "gave a tensor of shape (3,), expected a number, or one for each of the model's 2 parameter arrays",
    ),
    "infinite": (torch.tensor(INF), "gave inf"),
}


@pytest.mark.parametrize(("given", "why"), GIVEN.values(), ids=GIVEN)
def test_so_does_one_that_is_no_number(given: object, why: str, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(StepSize):
        def __call__(self, *of_the_round: object) -> float:
            return given  # type: ignore[return-value]

    ((model, _),) = played(FedAvg(step_size=Odd()), list, 1)
    assert_same(model, record(start()))
    assert f"round 1: step_size=Odd {why}: the model stays as it was" in caplog.text


def test_a_step_size_may_be_a_tensor_of_one_number() -> None:
    class Half(StepSize):
        def __call__(self, *of_the_round: object) -> float:
            return torch.tensor(0.5)  # type: ignore[return-value]

    ((model, metrics),) = played(FedAvg(step_size=Half()), list, 1)
    assert metrics["step-size"] == 0.5
    assert_same(model, played(FedAvg(step_size=Constant(0.5)), list, 1)[0][0])


DIRECTIONS = {
    "None": (lambda mean: None, "gave None, expected a pair"),
    "no state": (lambda mean: mean, "expected a pair: a tensor, a state"),
    "a number": (lambda mean: (0.5, {}), "gave a float, expected a tensor of shape ("),
    "its length": (
        lambda mean: (mean.norm(), {}),
        "gave a tensor of shape (), expected a tensor of shape (",
    ),
}


@pytest.mark.parametrize(("gives", "why"), DIRECTIONS.values(), ids=DIRECTIONS)
def test_so_does_a_server_optimizer_that_gives_no_direction(
    gives: Callable[[Tensor], object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(ServerOptimizer):
        def __call__(self, mean: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            return gives(mean)  # type: ignore[return-value]

    strategy = FedAvg(server_optimizer=Odd(), weighting=Mine(None, ()))
    ((model, _),) = played(strategy, list, 1)
    assert_same(model, record(start()))
    assert "round 1: server_optimizer=Odd gave" in caplog.text
    assert why in caplog.text
    assert strategy.state_dict()["weighting"] == {}


def test_a_weighting_without_a_state_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Bare(Weighting):
        def __call__(self, updates: Updates, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            return Uniform()(updates, {})[0]  # type: ignore[return-value]

    played(FedAvg(weighting=Bare()), list, 1)
    assert "round 1: weighting=Bare gave a tensor of shape (4,), expected a pair" in caplog.text


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_weights_that_do_not_sum_to_one_are_the_users_own_affair(scale: float) -> None:
    ((_, metrics),) = played(FedAvg(weighting=Mine(torch.full((4,), scale / 4), (1,))), list, 1)
    assert metrics["step-size"] == 1
