"""Oort: utilities by hand, who trains beside a plain loop, its invariants and reduction, and that it goes on."""

import math
from collections import Counter

import numpy as np
import pytest
from flwr.app import RecordDict

from helpers.federation import Federation, answer, assert_same, play, record, round_of, sent_model
from helpers.quadratics import CURVATURES, TARGETS, quadratics, start
from strategies import CentralPrivacy, FedAvg, Grouped, Oort, Uniform
from strategies.shared.seeding import Purpose, generator

NODES = 9
START = record({"w": np.zeros(2)})


def squared(partition_id: int, server_round: int) -> float:
    return float(np.random.default_rng([partition_id, server_round]).random()) * (1 + partition_id)


def node(partition_id: int, content: RecordDict) -> RecordDict:
    model = {"w": sent_model(content)["w"] + partition_id}
    loss = squared(partition_id, round_of(content))
    return answer(model, partition_id + 1, **{"squared-loss": loss})


def chosen(strategy: FedAvg | Oort, rounds: int) -> list[list[int]]:
    """Return who trains in each round."""
    grid, trained, model = Federation(node, NODES), [], START
    for t in range(1, rounds + 1):
        ((model, _),) = play(strategy, grid, model, (t,))
        trained.append(grid.trained())
    return trained


def test_utilities_by_hand() -> None:
    """U is 8, 2, 4 and 40: the median of four, the third value, cuts at 8; in round 4 the last rounds count.

    With staleness 1: sqrt(ln 4 / L) is 1.17741 for L = 1, 0.83255 for 2 and 0.67978 for 3.
    """
    strategy = Oort(clip=0.5, staleness=1.0)
    strategy._utilities = {0: 8.0, 1: 2.0, 2: 4.0, 3: 40.0}
    strategy._last_rounds = {0: 3, 1: 1, 2: 2, 3: 3}
    got = strategy.compute_utilities([0, 1, 2, 3], 4)
    assert got == pytest.approx({0: 1.67978, 1: 0.25 + 1.17741, 2: 0.5 + 0.83255, 3: 1.67978}, abs=1e-5)
    assert strategy.compute_utilities([1, 2], 1) == {1: 0.5, 2: 1.0}  # of those that are here; ln 1 = 0


def test_the_best_are_taken_where_nothing_is_left_to_chance() -> None:
    """With cut_off = 1 and no exploration the m largest are admitted, and no other."""
    strategy = Oort(
        nodes_per_round=2, exploration=0, least_exploration=0, staleness=0, cut_off=1.0, clip=1.0
    )
    strategy._utilities = {0: 5.0, 1: 2.0, 2: 4.0, 3: 1.0}
    strategy._last_rounds = dict.fromkeys(range(4), 1)
    assert strategy.choose([0, 1, 2, 3], 7) == [0, 2]
    assert strategy.choose([1, 2, 3], 7) == [1, 2]  # 0 is away
    assert strategy.choose([3, 8, 9], 7) == [3, *strategy.choose([8, 9, 3], 7)[1:]]  # too few known


def test_a_statistical_utility_is_that_of_the_nodes_examples() -> None:
    """Of LeastSquares on two rows: losses h_j t_j^2 / 2 at w = 0, U = 2 sqrt of the mean of their squares."""
    strategy = Oort()
    play(strategy, quadratics(), start())
    losses = 0.5 * (CURVATURES * TARGETS**2).numpy()
    expected = 2 * np.sqrt((losses**2).mean(1))
    assert [strategy._utilities[k] for k in range(3)] == pytest.approx(expected.tolist())


def by_hand(seed: int, count: int, rounds: int) -> list[list[int]]:
    """Play Oort's choice line by line, with the strategy's draws and numbers of its own."""
    utility: dict[int, float] = {}
    last: dict[int, int] = {}
    history = []
    for t in range(1, rounds + 1):
        rng = generator(seed, Purpose.GUIDED_SELECTION, server_round=t)
        epsilon = 0.9 * 0.8 ** (t - 1)
        epsilon = max(epsilon, 0.2)
        new = [k for k in range(NODES) if k not in utility]
        exploit = min(int((1 - epsilon) * count + 1e-9), len(utility))
        exploit = count - min(count - exploit, len(new))
        explored = rng.choice(new, count - exploit, replace=False).tolist() if count > exploit else []
        exploited: list[int] = []
        if exploit:
            clipped = dict(sorted(utility.items()))
            ordered = sorted(clipped.values())
            cap = ordered[min(int(0.8 * len(ordered)), len(ordered) - 1)]
            scores = {
                k: min(u, cap) / cap + math.sqrt(0.1 * math.log(t) / last[k]) for k, u in clipped.items()
            }
            bar = 0.7 * sorted(scores.values())[-exploit]
            pool = [k for k in scores if scores[k] >= bar]
            weights = np.array([scores[k] + 1e-12 for k in pool])
            exploited = rng.choice(pool, exploit, replace=False, p=weights / weights.sum()).tolist()
        trained = sorted(explored + exploited)
        for k in trained:
            utility[k], last[k] = (k + 1) * math.sqrt(squared(k, t)), t
        history.append(trained)
    return history


@pytest.mark.parametrize("seed", range(3))
def test_who_trains_agrees_with_a_plain_loop(seed: int) -> None:
    strategy = Oort(
        nodes_per_round=4, num_nodes=NODES, seed=seed, exploration_decay=0.8, clip=0.8, cut_off=0.7
    )
    assert chosen(strategy, 15) == by_hand(seed, 4, 15)


def test_each_round_has_its_nodes_and_each_node_its_turn() -> None:
    strategy = Oort(nodes_per_round=3, num_nodes=NODES)
    history = chosen(strategy, 30)
    assert all(len(set(trained)) == 3 for trained in history)
    counts = Counter(k for trained in history for k in trained)
    assert set(counts) == set(range(NODES))
    assert counts[NODES - 1] > counts[0]  # whose utility is larger
    assert history != chosen(Oort(nodes_per_round=3, num_nodes=NODES, seed=1), 30)


def test_all_nodes_in_a_round_are_fedavg_bit_for_bit() -> None:
    one = play(Oort(num_nodes=NODES), Federation(node, NODES), START, range(1, 5))
    other = play(FedAvg(num_nodes=NODES), Federation(node, NODES), START, range(1, 5))
    assert_same(one[-1][0], other[-1][0])


def test_it_goes_on_as_it_was() -> None:
    some = {"nodes_per_round": 3, "num_nodes": NODES}
    whole = play(Oort(**some), Federation(node, NODES), START, range(1, 11))[-1][0]
    before, after = Oort(**some), Oort(**some)
    middle = play(before, Federation(node, NODES), START, range(1, 6))[-1][0]
    after.load_state_dict(before.state_dict())
    assert_same(play(after, Federation(node, NODES), middle, range(6, 11))[-1][0], whole)


def test_nodes_without_a_loss_left_can_be_drawn() -> None:
    strategy = Oort(nodes_per_round=2, exploration=0, least_exploration=0, staleness=0)
    strategy._utilities, strategy._last_rounds = dict.fromkeys(range(4), 0.0), dict.fromkeys(range(4), 1)
    assert len(set(strategy.choose([0, 1, 2, 3], 3))) == 2


def test_what_makes_no_sense_is_refused() -> None:
    for name in ("exploration", "exploration_decay", "least_exploration", "clip", "cut_off"):
        with pytest.raises(ValueError, match=rf"strategy\.{name}=1\.5 is out of range"):
            Oort(**{name: 1.5})
    with pytest.raises(ValueError, match=r"strategy\.staleness=-1"):
        Oort(staleness=-1)
    with pytest.raises(
        ValueError, match="privacy would not hold: strategy=oort chooses who trains by losses"
    ):
        Oort(privacy=CentralPrivacy(), weighting=Uniform())
    with pytest.raises(ValueError, match="chooses among all nodes"):
        Grouped(inner=Oort(), groups={"a": (0,)})
