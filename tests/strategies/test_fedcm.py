"""FedCM, server and node together, on quadratics: by hand, its reduction, and what it refuses."""

import numpy as np
import pytest

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.preflight import check
from helpers.federation import assert_same, play
from helpers.quadratics import CURVATURES, RATE, STEPS, TARGETS, quadratics, reached, start
from strategies import CentralPrivacy, FedAvg, FedCM, Uniform


def test_two_steps_by_hand() -> None:
    """One node at w = 0, its target 1 in the first coordinate, curvature 1; alpha = 1/2, a rate of 0.1.

    Round 1, without a momentum: y = 0.05, 0.0975, and so on: y <- y + 0.05 (1 - y), 8 times. Its mean
    direction is -y / 0.8, which is the momentum of round 2: y <- y + 0.05 (1 - y) + 0.05 * y_1 / 0.8.
    """
    first = 1 - 0.95**8
    second = first
    for _ in range(8):
        second += 0.05 * (1 - second) + 0.05 * first / 0.8
    grid, strategy = quadratics(), FedCM(alpha=0.5, members=(0,))
    models = play(strategy, grid, start(), (1, 2))
    assert [arrays["w"].numpy()[0, 0] for arrays, _ in models] == pytest.approx([first, second])


def by_hand(rounds: int, alpha: float) -> np.ndarray:
    """Return w after so many rounds of Algorithm 2, written out in plain arithmetic, all nodes in each."""
    h, t, w, momentum = CURVATURES.numpy(), TARGETS.numpy(), np.zeros(2), np.zeros(2)
    for _ in range(rounds):
        ends = []
        for k in range(3):
            y = w.copy()
            for _ in range(STEPS):
                y = y - RATE * (alpha * h[k] * (y - t[k]) + (1 - alpha) * momentum)
            ends.append(y)
        momentum = np.mean([w - y for y in ends], axis=0) / (RATE * STEPS)
        w = np.mean(ends, axis=0)
    return w


@pytest.mark.parametrize("alpha", [0.1, 0.7])
def test_four_rounds_beside_plain_arithmetic(alpha: float) -> None:
    np.testing.assert_allclose(reached(FedCM(alpha=alpha), 4), by_hand(4, alpha), rtol=1e-12)


def test_with_a_share_of_one_it_is_fedavg_bit_for_bit() -> None:
    one = play(FedCM(alpha=1), quadratics(), start(), range(1, 4))[-1][0]
    assert_same(one, play(FedAvg(weighting=Uniform()), quadratics(), start(), range(1, 4))[-1][0])


def test_it_goes_on_with_the_momentum_that_it_had() -> None:
    whole, parts = FedCM(alpha=0.3), FedCM(alpha=0.3)
    expected = play(whole, quadratics(), start(), range(1, 5))[-1][0]
    middle = play(parts, quadratics(), start(), range(1, 3))[-1][0]
    resumed = FedCM(alpha=0.3)
    resumed.load_state_dict(parts.state_dict())
    assert_same(play(resumed, quadratics(), middle, range(3, 5))[-1][0], expected)


def test_what_is_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy\.alpha=0 is out of range"):
        FedCM(alpha=0)
    with pytest.raises(ValueError, match="none under strategy=fedcm"):
        FedCM(privacy=CentralPrivacy(clip=1.0, noise_multiplier=1.0))


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ("client.optimizer.momentum=0.9", "set client_optimizer=sgd client.optimizer.momentum=0"),
        ("client_optimizer=adam", "client.optimizer is Adam, not plain SGD"),
        ("private=fedper node_test_fraction=0.2", "a private part has no counterpart"),
    ],
)
@pytest.mark.parametrize("strategy", ["fedcm", "mimelite"])
def test_what_nodes_cannot_do_is_refused(strategy: str, overrides: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        check(Experiment(f"strategy={strategy} {overrides}"))


def test_mimelite_takes_nodes_with_an_initial_model_of_their_own_and_fedcm_does_not() -> None:
    overrides = "corrections=own_initial_model"
    check(Experiment(f"strategy=mimelite {overrides}"))
    with pytest.raises(UserError, match="as gradients"):
        check(Experiment(f"strategy=fedcm {overrides}"))
