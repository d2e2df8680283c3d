"""Mime-lite, server and node together, on quadratics: by hand, its reduction, and what it refuses."""

import numpy as np
import pytest

from helpers.federation import assert_same, play
from helpers.quadratics import CURVATURES, RATE, STEPS, TARGETS, quadratics, reached, start
from strategies import FedAvg, MimeLite, Uniform


def test_two_rounds_by_hand() -> None:
    """One node at w = 0, its target 1 in the first coordinate, curvature 1; beta = 1/2, a rate of 0.1.

    Round 1, m = 0: y <- y + 0.05 (1 - y), 8 times; then m = -1/2, half the gradient at 0. Round 2:
    y <- y + 0.05 (1 - y) + 0.05 / 2, 8 times.
    """
    first = 1 - 0.95**8
    second = first
    for _ in range(8):
        second += 0.05 * (1 - second) + 0.025
    models = play(MimeLite(beta=0.5, members=(0,)), quadratics(), start(), (1, 2))
    assert [arrays["w"].numpy()[0, 0] for arrays, _ in models] == pytest.approx([first, second])


def by_hand(rounds: int, beta: float) -> np.ndarray:
    """Return w after so many rounds of Algorithm 1, written out in plain arithmetic, all nodes in each."""
    h, t, w, m = CURVATURES.numpy(), TARGETS.numpy(), np.zeros(2), np.zeros(2)
    for _ in range(rounds):
        ends = []
        for k in range(3):
            y = w.copy()
            for _ in range(STEPS):
                y = y - RATE * ((1 - beta) * h[k] * (y - t[k]) + beta * m)
            ends.append(y)
        m = (1 - beta) * (h * (w - t)).mean(0) + beta * m
        w = np.mean(ends, axis=0)
    return w


@pytest.mark.parametrize("beta", [0.9, 0.3])
def test_four_rounds_beside_plain_arithmetic(beta: float) -> None:
    np.testing.assert_allclose(reached(MimeLite(beta=beta), 4), by_hand(4, beta), rtol=1e-12)


def test_without_a_momentum_it_is_fedavg_bit_for_bit() -> None:
    one = play(MimeLite(beta=0), quadratics(), start(), range(1, 4))[-1][0]
    assert_same(one, play(FedAvg(weighting=Uniform()), quadratics(), start(), range(1, 4))[-1][0])


def test_it_goes_on_with_the_momentum_that_it_had() -> None:
    whole, parts = MimeLite(), MimeLite()
    expected = play(whole, quadratics(), start(), range(1, 5))[-1][0]
    middle = play(parts, quadratics(), start(), range(1, 3))[-1][0]
    resumed = MimeLite()
    resumed.load_state_dict(parts.state_dict())
    assert_same(play(resumed, quadratics(), middle, range(3, 5))[-1][0], expected)


def test_a_momentum_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy\.beta=1 is out of range"):
        MimeLite(beta=1)
