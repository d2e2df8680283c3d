"""Scaffnew, server and node together, on quadratics: by hand, its reduction, and what it refuses."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from helpers.federation import assert_same, play
from helpers.quadratics import CURVATURES, OPTIMUM, RATE, TARGETS, quadratics, reached, start
from strategies import AgreementMask, Constant, FedAvg, Scaffnew, TooManyFailedRounds, Uniform
from strategies.parts.weighting import ByExamples


@dataclass(kw_only=True, eq=False)
class Fixed(Scaffnew):
    """The same with a given number of steps."""

    steps: int = 2

    def draw_local_steps(self, server_round: int) -> int:
        return self.steps


def test_two_rounds_by_hand() -> None:
    """Two nodes, in the first coordinate: curvatures 1 and 2, targets 1 and -4; p = 1/2, two steps of rate 0.1.

    Round 1, from 0: 0.1, 0.19 and -0.8, -1.44, so that w = -0.625; p / gamma = 5, so that
    h = 5 (-0.625 - 0.19) = -4.075 and 5 (-0.625 + 1.44) = 4.075. Round 2: the first node goes by
    -0.1 (-1.625 + 4.075) to -0.87, and to -1.0905; the second by -0.1 (6.75 - 4.075) to -0.8925, and to -1.1065.
    """
    models = play(Fixed(probability=0.5, members=(0, 2)), quadratics(), start(), (1, 2))
    assert [arrays["w"].numpy()[0, 0] for arrays, _ in models] == pytest.approx([-0.625, -1.0985])


def by_hand(rounds: int, p: float, seed: int) -> np.ndarray:
    """Return w after so many rounds of Algorithm 2 in plain arithmetic, the iterations one after the other."""
    h, t = CURVATURES.numpy(), TARGETS.numpy()
    x, own = np.zeros((3, 2)), np.zeros((3, 2))
    for server_round in range(1, rounds + 1):
        last = np.random.default_rng([seed, server_round, 0, 17]).geometric(p)
        for iteration in range(1, last + 1):
            hat = x - RATE * (h * (x - t) - own)
            x = np.tile(hat.mean(0), (3, 1)) if iteration == last else hat
            own = own + p / RATE * (x - hat)
    return x[0]


@pytest.mark.parametrize(("p", "seed"), [(0.2, 0), (0.5, 3)])
def test_five_rounds_beside_plain_arithmetic(p: float, seed: int) -> None:
    actual = reached(Scaffnew(probability=p, seed=seed), 5)
    np.testing.assert_allclose(actual, by_hand(5, p, seed), rtol=1e-11)


def test_it_reaches_the_optimum_that_fedavg_misses() -> None:
    fedavg = reached(FedAvg(weighting=Uniform()), 100)
    assert np.abs(fedavg - OPTIMUM.numpy()).max() > 0.05
    np.testing.assert_allclose(reached(Scaffnew(probability=0.3), 100), OPTIMUM.numpy(), atol=1e-9)


def test_with_p_1_it_is_fedavg_with_one_step() -> None:
    w = np.zeros(2)
    for _ in range(4):
        w = w - RATE * (CURVATURES.numpy() * (w - TARGETS.numpy())).mean(0)
    np.testing.assert_allclose(reached(Scaffnew(probability=1.0), 4), w, rtol=1e-12)


def test_the_number_of_steps_is_geometric_and_of_seed_and_round() -> None:
    steps = [Scaffnew(probability=0.25).draw_local_steps(t) for t in range(2000)]
    assert min(steps) == 1
    assert np.mean(steps) == pytest.approx(4, rel=0.05)
    assert np.mean(np.array(steps) == 1) == pytest.approx(0.25, abs=0.03)
    assert steps != [Scaffnew(probability=0.25, seed=1).draw_local_steps(t) for t in range(2000)]


@pytest.mark.parametrize("lost", [(2,), (3, 4), (1,)], ids=str)
def test_a_round_without_a_reply_changes_nothing(lost: tuple[int, ...]) -> None:
    """The model stays; so does every variate, also of those whose reply arrived: rounds count as if never asked."""
    strategy, grid, arrays = Fixed(probability=0.5, num_nodes=3), quadratics(), start()
    for server_round in range(1, 9):
        lose = server_round in lost
        ((new, _),) = play(
            strategy, grid, arrays, (server_round,), order=lambda r, lose=lose: r[1:] if lose else r
        )
        if lose:
            assert_same(new, arrays)
        arrays = new
    whole = reached(Fixed(probability=0.5), 8 - len(lost))
    np.testing.assert_allclose(arrays["w"].numpy()[:, 0], whole, rtol=1e-12)


def test_a_node_that_is_not_reached_catches_up() -> None:
    strategy, grid, arrays = Fixed(probability=0.5, num_nodes=3), quadratics(), start()
    nodes = grid.get_node_ids()
    for server_round in range(1, 6):
        here = nodes[:2] if server_round == 3 else nodes
        grid.get_node_ids = lambda here=here: here  # type: ignore[method-assign]
        strategy.num_nodes = len(here)  # else it would wait
        strategy.population_size = lambda: 3  # type: ignore[method-assign]
        ((arrays, _),) = play(strategy, grid, arrays, (server_round,))
    np.testing.assert_allclose(arrays["w"].numpy()[:, 0], reached(Fixed(probability=0.5), 4), rtol=1e-12)


def test_a_run_ends_where_a_node_never_replies() -> None:
    with pytest.raises(
        TooManyFailedRounds, match="2 sound replies, and Scaffnew needs those of all 3 nodes"
    ):
        play(Scaffnew(num_nodes=3), quadratics(), start(), range(1, 4), order=lambda replies: replies[1:])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no p": ({"probability": 0}, r"strategy\.probability=0 is out of range: expected above 0"),
    "p above 1": ({"probability": 1.5}, r"strategy\.probability=1.5"),
    "weights": (
        {"weighting": ByExamples()},
        "weighting=ByExamples is out of range: expected uniform under",
    ),
    "mask": ({"mask": AgreementMask()}, "mask=AgreementMask is out of range: expected none under"),
    "step": ({"step_size": Constant(0.5)}, r"step_size\.eta=0.5 is out of range: expected 1 under"),
    "some nodes": (
        {"nodes_per_round": 2, "num_nodes": 3},
        "nodes_per_round=2 is out of range: expected null",
    ),
    "a share": ({"fraction_train": 0.5}, r"fraction_train=0.5"),
    "dropout": ({"dropout": 0.1}, r"participation\.dropout=0.1"),
}


@pytest.mark.parametrize(("settings", "line"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_plain_mean_of_all_nodes_is_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        Scaffnew(**settings)
