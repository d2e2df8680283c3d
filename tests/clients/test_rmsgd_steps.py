"""RMSGD in plain numbers: its step, its schedule, and which layers have a rate of their own."""

import pytest
import torch
from torch import nn

from clients.optimizers import RMSGD
from strategies.shared.linalg import knowledge_gain


def stepped(optimizer: RMSGD, p: nn.Parameter, *gradients: float) -> list[float]:
    points = []
    for g in gradients:
        p.grad = torch.full_like(p, g)
        optimizer.step()
        points.append(float(p.detach()))
    return points


def test_momentum_and_decay_by_hand() -> None:
    """g + 0.1 w; b = 0.5 b + that; w - 0.2 b: from w = 1 with the gradients 2 and 3."""
    p = nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = RMSGD([p], lr=0.2, momentum=0.5, weight_decay=0.1)
    first = 1 - 0.2 * (2 + 0.1)
    second = first - 0.2 * (0.5 * 2.1 + 3 + 0.1 * first)
    assert stepped(optimizer, p, 2, 3) == pytest.approx([first, second], rel=1e-12)


def test_a_parameter_without_a_gradient_stays_and_the_next_moves() -> None:
    still, moved = (nn.Parameter(torch.ones(1)) for _ in range(2))
    moved.grad = torch.ones(1)
    RMSGD([still, moved], lr=0.5).step()
    assert (still.item(), moved.item()) == (1, 0.5)


def test_a_schedule_scales_the_layers_own_rates() -> None:
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = RMSGD([p], lr=0.4, momentum=0)
    optimizer.state[p]["rate"] = 0.3
    optimizer.param_groups[0]["lr"] = 0.1  # a quarter of what it started with
    assert stepped(optimizer, p, 1) == pytest.approx([-0.3 / 4])


@pytest.mark.parametrize("linear", [False, True])
def test_which_layers_have_a_rate_of_their_own(linear: bool) -> None:
    """Of zeros nothing is learnt: a layer with a rate of its own has 1.8 lr after one epoch, 1 lr then."""
    bias, conv, scale, dense, last = (
        nn.Parameter(torch.zeros(*shape)) for shape in [(2,), (4, 3, 2, 2), (4,), (5, 4), (5,)]
    )
    dense.data = torch.randn(5, 1, generator=torch.Generator().manual_seed(0)) @ torch.ones(1, 4)
    optimizer = RMSGD([bias, conv, scale, dense, last], lr=0.1, beta=0.8, linear=linear)
    optimizer.epoch_step()
    optimizer.epoch_step()
    rates = [optimizer.state[p]["rate"] for p in (bias, conv, scale, dense, last)]
    own = 0.8 * 0.18  # its gain is above 0, and has not changed
    expected = [0.1, 0.1, 0.1, own, own] if linear else [0.1] * 5
    assert rates == pytest.approx(expected)


def test_a_rate_is_never_below_zero() -> None:
    rows = torch.arange(1.0, 7.0).view(6, 1, 1, 1)
    weight = nn.Parameter(rows * torch.ones(6, 5, 2, 2))  # of rank one: its gain is above 0
    optimizer = RMSGD([weight], lr=0.01, beta=0.0, zeta=10.0)
    optimizer.epoch_step()
    optimizer.epoch_step()
    weight.data = torch.zeros_like(weight)  # what was gained is lost
    optimizer.epoch_step()
    assert optimizer.state[weight]["rate"] == 0
    optimizer.epoch_step()  # a layer that was ready once does not go back to its first rate
    assert optimizer.state[weight]["rate"] == 0


def test_a_dense_layers_gain_is_by_its_rows() -> None:
    """Of a matrix of rank one the transpose has another gain: 1 / rows."""
    draws = torch.Generator().manual_seed(0)
    low, high = (
        torch.randn(6, rank, generator=draws) @ torch.randn(rank, 30, generator=draws) for rank in (1, 4)
    )
    dense = nn.Parameter(low)
    optimizer = RMSGD([dense], lr=0.01, beta=0.5, zeta=2.0, linear=True)
    optimizer.epoch_step()
    dense.data = high
    optimizer.epoch_step()
    expected = 0.5 * (0.5 * 0.01 + 2 * 0.01) + 2 * (knowledge_gain(high) - knowledge_gain(low))
    assert expected > 0.1
    assert optimizer.state[dense]["rate"] == pytest.approx(expected, rel=1e-12)
