"""Agnostic federated learning: its weights by hand, beside plain arithmetic, its reduction, and its end."""

import numpy as np
import pytest
import torch

from helpers.federation import assert_same, play, record
from helpers.quadratics import CURVATURES, RATE, STEPS, TARGETS, quadratics, reached, start
from strategies import AFL, Agnostic, FedAvg, Uniform, Updates
from strategies.parts.layout import Layout
from strategies.parts.weighting import State
from strategies.shared import protocol


def weighed(rate: float, losses: dict[int, float], state: State) -> tuple[list[float], State]:
    updates = Updates(
        deltas=torch.zeros(len(losses), 2),
        buffers=torch.zeros(len(losses), 0),
        num_examples=torch.ones(len(losses), dtype=torch.float64),
        partition_ids=tuple(losses),
        layout=Layout.of(record({"w": np.zeros(2)})),
        start=torch.zeros(2),
        metrics={protocol.START_LOSS: torch.tensor(list(losses.values()), dtype=torch.float64)},
    )
    weights, state = Agnostic(rate)(updates, state)
    return weights.tolist(), state


def test_three_rounds_by_hand() -> None:
    """lambda = 1/3 each; 1/3 + (0.1, 0.2, 0.6) sums to 1.9: 0.3 less each; the third loss then takes all.

    Climbed by 1 (0, 0, 9) it is (0.13, 0.23, 9.63): 8.63 less, and what is negative is 0.
    """
    weights, state = weighed(0.1, {0: 1, 1: 2, 2: 6}, {})
    assert weights == pytest.approx([1 / 3] * 3)
    weights, state = weighed(1.0, {0: 0, 1: 0, 2: 9}, state)
    assert weights == pytest.approx([1 / 3 - 0.2, 1 / 3 - 0.1, 1 / 3 + 0.3])
    weights, _ = weighed(1.0, {0: 0, 1: 0, 2: 0}, state)
    assert weights == pytest.approx([0, 0, 1])


def test_some_nodes_are_weighted_among_themselves_and_a_new_one_comes_in_with_its_share() -> None:
    """After (0.25, 0.75) node 5 gets 1/3, the others two thirds of theirs: 1/6 and 1/3 of a half."""
    _, state = weighed(0.5, {0: 0, 3: 1}, {})
    assert state["lambda"].tolist() == pytest.approx([0.25, 0.75])
    weights, state = weighed(0.0, {0: 0, 5: 0}, state)
    assert weights == pytest.approx([1 / 3, 2 / 3])
    assert dict(
        zip(state["partition_ids"].tolist(), state["lambda"].tolist(), strict=True)
    ) == pytest.approx({0: 1 / 6, 3: 1 / 2, 5: 1 / 3})


def by_hand(rounds: int, rate: float) -> np.ndarray:
    """Return w after so many rounds, the projection by bisection."""
    h, t, w, mixture = CURVATURES.numpy(), TARGETS.numpy(), np.zeros(2), np.full(3, 1 / 3)
    for _ in range(rounds):
        losses, ends = 0.5 * (h * (w - t) ** 2).sum(1), []
        for k in range(3):
            y = w.copy()
            for _ in range(STEPS):
                y = y - RATE * h[k] * (y - t[k])
            ends.append(y)
        w = mixture @ np.array(ends)
        climbed, low, high = mixture + rate * losses, -100.0, 1e6
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(climbed - middle, 0).sum() > 1 else (low, middle)
        mixture = np.maximum(climbed - low, 0)
    return w


@pytest.mark.parametrize("rate", [0.001, 0.02])
def test_five_rounds_beside_plain_arithmetic(rate: float) -> None:
    np.testing.assert_allclose(reached(AFL(weighting=Agnostic(rate)), 5), by_hand(5, rate), rtol=1e-10)


def test_without_a_rate_it_is_fedavg_bit_for_bit() -> None:
    one = play(AFL(weighting=Agnostic(0)), quadratics(), start(), range(1, 4))[-1][0]
    assert_same(one, play(FedAvg(weighting=Uniform()), quadratics(), start(), range(1, 4))[-1][0])


def test_the_largest_loss_is_smaller_than_under_fedavg() -> None:
    h, t = CURVATURES.numpy(), TARGETS.numpy()
    worst = [
        (0.5 * h * (reached(strategy, 200) - t) ** 2).sum(1).max()
        for strategy in (FedAvg(weighting=Uniform()), AFL(weighting=Agnostic(0.001)))
    ]
    assert worst[1] < 0.9 * worst[0]


def test_a_negative_rate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"weighting\.rate=-1 is out of range"):
        Agnostic(-1)
