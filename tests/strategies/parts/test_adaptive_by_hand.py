"""Two rounds of the adaptive server optimizers in plain numbers (Reddi et al., Algorithm 2)."""

from math import sqrt
from typing import Any

import pytest
import torch

from strategies import Adagrad, Adam, Momentum, Yogi
from strategies.parts.server_optimizer import ServerOptimizer

ROUNDS = ((4.0, -2.0), (1.0, 3.0))  # D of each round


def played(optimizer: ServerOptimizer) -> list[list[float]]:
    state: dict[str, torch.Tensor] = {}
    points = []
    for values in ROUNDS:
        direction, state = optimizer(torch.tensor(values, dtype=torch.float64), state)
        points.append(direction.tolist())
    return points


def expected(rule: str, beta1: float, beta2: float, epsilon: float, **options: bool) -> list[list[float]]:
    """Return m / (sqrt(v) + epsilon) coordinate by coordinate, with Kingma and Ba's correction."""
    points = []
    m, v = [0.0, 0.0], [0.0, 0.0]
    for t, values in enumerate(ROUNDS, 1):
        m = [beta1 * a + (1 - beta1) * d for a, d in zip(m, values, strict=True)]
        if rule == "adagrad":
            v = [b + d * d for b, d in zip(v, values, strict=True)]
        elif rule == "adam":
            v = [beta2 * b + (1 - beta2) * d * d for b, d in zip(v, values, strict=True)]
        else:
            signs = [(b > d * d) - (b < d * d) for b, d in zip(v, values, strict=True)]
            v = [b - (1 - beta2) * d * d * s for b, d, s in zip(v, values, signs, strict=True)]
        corrected = options.get("bias_correction", False)
        of_m = 1 - beta1**t if corrected else 1
        of_v = 1 - beta2**t if corrected and rule != "adagrad" else 1  # Adagrad's sum is no average
        roots = [
            sqrt(b / of_v + epsilon) if options.get("epsilon_inside") else sqrt(b / of_v) + epsilon
            for b in v
        ]
        points.append([a / of_m / root for a, root in zip(m, roots, strict=True)])
    return points


OPTIONS: list[dict[str, Any]] = [{}, {"bias_correction": True}, {"epsilon_inside": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rule", ["adagrad", "adam", "yogi"])
def test_two_rounds(rule: str, options: dict[str, bool]) -> None:
    common: dict[str, Any] = {"beta1": 0.75, "epsilon": 0.125, **options}
    optimizer = {"adagrad": Adagrad, "adam": Adam, "yogi": Yogi}[rule]
    own = {} if rule == "adagrad" else {"beta2": 0.5}
    actual = played(optimizer(**common, **own))
    for mine, theirs in zip(actual, expected(rule, 0.75, 0.5, 0.125, **options), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-12)


def test_yogis_v_goes_down_as_well_as_up() -> None:
    """D = 4 then 1, beta2 = 0.5: v = 0 + 0.5 * 16 = 8, then 8 - 0.5 * 1 = 7.5."""
    _, second = played(Yogi(beta1=0, beta2=0.5, epsilon=0))
    assert second[0] == pytest.approx(1 / sqrt(7.5), rel=1e-12)


@pytest.mark.parametrize("optimizer", [Adagrad(epsilon=0), Adam(epsilon=0), Yogi(epsilon=0)], ids=repr)
def test_a_coordinate_that_never_moved_has_no_direction(optimizer: ServerOptimizer) -> None:
    direction, _ = optimizer(torch.tensor([0.0, 2.0]), {})
    assert direction[0] == 0
    assert direction[1] > 0


@pytest.mark.parametrize("rule", [Adam, Yogi])
def test_half_the_mean_is_twice_the_epsilon(rule: Any) -> None:
    """m and sqrt(v) both halve: so updates summed over twice the nodes, half of which are still, are read."""
    whole, half = rule(epsilon=1e-3), rule(epsilon=5e-4)
    state: dict[str, torch.Tensor] = {}
    of_half: dict[str, torch.Tensor] = {}
    for values in ([0.3, -0.02], [-0.1, 0.05], [0.2, 0.0]):
        mean = torch.tensor(values, dtype=torch.float64)
        one, state = whole(mean.clone(), state)
        other, of_half = half(mean / 2, of_half)
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


def test_momentum() -> None:
    """m <- beta m + D (Hsu et al. 2019): no 1 - beta before D."""
    assert played(Momentum(0.5)) == [[4, -2], [0.5 * 4 + 1, 0.5 * -2 + 3]]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("rule", [Adagrad, Adam, Yogi])
def test_without_epsilon_what_is_too_small_to_square_takes_no_step(rule: Any, inside: bool) -> None:
    """1e-30 squared is 0 in float32; m / 0 would be infinite, and m over the least number nearly so."""
    optimizer = rule(epsilon=0.0, epsilon_inside=inside)
    direction, state = optimizer(torch.tensor([1e-30, 0.0, 2.0]), {})
    assert direction[:2].tolist() == [0, 0]
    assert direction[2] > 0
    direction, _ = optimizer(torch.tensor([1.0, 0.0, 1.0]), state)
    assert direction.isfinite().all()
    assert direction[0] > 0
