"""Power-of-choice: who trains, by hand and beside a plain loop; its reduction; and that it goes on as it was."""

import numpy as np
import pytest
from flwr.app import RecordDict

from helpers.federation import Federation, answer, assert_same, model_in, play, record, round_of, sent_model
from helpers.quadratics import CURVATURES, RATE, STEPS, TARGETS, quadratics, start
from strategies import CentralPrivacy, FedAvg, Grouped, PowerOfChoice, Uniform
from strategies.shared.seeding import Purpose, generator

NODES = 8
START = record({"w": np.zeros(2)})


def loss_of(partition_id: int, server_round: int) -> float:
    return float(np.random.default_rng([partition_id, server_round]).random())


def node(partition_id: int, content: RecordDict) -> RecordDict:
    """Return a model that depends on the partition, and a loss that depends on the round, too."""
    model = {"w": sent_model(content)["w"] + partition_id}
    return answer(model, partition_id + 1, loss=loss_of(partition_id, round_of(content)))


def sample_rounds(strategy: FedAvg | PowerOfChoice, rounds: int) -> list[list[int]]:
    """Return who trains in each round."""
    grid, rounds_asked = Federation(node, NODES), []
    model = START
    for t in range(1, rounds + 1):
        ((model, _),) = play(strategy, grid, model, (t,))
        rounds_asked.append(grid.trained())
    return rounds_asked


def test_those_with_the_largest_last_loss_train() -> None:
    """All are candidates: the four that have not trained go first, then the losses decide."""
    strategy = PowerOfChoice(nodes_per_round=4, num_nodes=NODES, candidates=NODES)
    first, second, *later = sample_rounds(strategy, 6)
    assert sorted(first + second) == list(range(NODES))
    last = {k: loss_of(k, 1) for k in first} | {k: loss_of(k, 2) for k in second}
    for t, chosen in enumerate(later, start=3):
        assert chosen == sorted(sorted(last, key=lambda k: -last[k])[:4])
        last |= {k: loss_of(k, t) for k in chosen}


def test_losses_that_are_given_by_hand() -> None:
    strategy = PowerOfChoice(nodes_per_round=2, num_nodes=4, candidates=4)
    strategy._losses = {0: 0.5, 1: 2.0, 2: 1.0}
    assert strategy.choose([0, 1, 2, 3], 5) == [1, 3]  # 3 has not trained yet
    strategy._losses[3] = 0.7
    assert strategy.choose([0, 1, 2, 3], 5) == [1, 2]
    assert strategy.choose([0, 2, 3], 5) == [2, 3]  # 1 is away


def test_the_first_nodes_are_drawn_not_the_first_by_number() -> None:
    firsts = {
        tuple(
            PowerOfChoice(nodes_per_round=2, num_nodes=NODES, candidates=6, seed=s).choose(
                [*range(NODES)], 1
            )
        )
        for s in range(12)
    }
    assert len(firsts) > 6


@pytest.mark.parametrize("candidates", [1, 3])
def test_without_further_candidates_it_is_fedavg_bit_for_bit(candidates: int) -> None:
    some = {"nodes_per_round": 3, "num_nodes": NODES, "seed": 4}
    one = play(PowerOfChoice(**some, candidates=candidates), Federation(node, NODES), START, range(1, 5))
    other = play(FedAvg(**some), Federation(node, NODES), START, range(1, 5))
    assert_same(one[-1][0], other[-1][0])


def test_it_goes_on_as_it_was() -> None:
    some = {"nodes_per_round": 3, "num_nodes": NODES, "candidates": 6}
    whole = play(PowerOfChoice(**some), Federation(node, NODES), START, range(1, 9))[-1][0]
    before, after = PowerOfChoice(**some), PowerOfChoice(**some)
    middle = play(before, Federation(node, NODES), START, range(1, 5))[-1][0]
    after.load_state_dict(before.state_dict())
    assert_same(play(after, Federation(node, NODES), middle, range(5, 9))[-1][0], whole)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy\.candidates=0 is out of range"):
        PowerOfChoice(candidates=0)
    with pytest.raises(ValueError, match="chooses among all nodes"):
        Grouped(inner=PowerOfChoice(), groups={"a": (0,)})
    with pytest.raises(ValueError, match=r"privacy would not hold: .* who trains by losses without noise"):
        PowerOfChoice(privacy=CentralPrivacy(), weighting=Uniform())


# pow-d, which asks the candidates before the round.


def measuring(partition_id: int, content: RecordDict) -> RecordDict:
    """Answer with a loss that depends on the model that was sent."""
    model = {"w": sent_model(content)["w"] + partition_id}
    loss = float(np.cos(partition_id + sent_model(content)["w"].sum()) + 1)
    return answer(model, partition_id + 1, **{"start-loss": loss})


def test_pow_d_trains_the_candidates_with_the_largest_loss_at_the_rounds_model() -> None:
    """Who is asked is drawn; who trains is decided by what they answer, round by round."""
    strategy = PowerOfChoice(nodes_per_round=2, num_nodes=NODES, candidates=5, asks=True, seed=3)
    grid, model = Federation(measuring, NODES), START
    several = set()
    for t in range(1, 7):
        w = model_in(model)["w"].sum()
        ((model, _),) = play(strategy, grid, model, (t,))
        candidates = [k for kind, k in grid.requests if kind == "query.measure"]
        drawn = generator(3, Purpose.SAMPLE_NODES, server_round=t).choice(NODES, 5, replace=False)
        assert candidates == sorted(drawn.tolist())
        chosen = sorted(candidates, key=lambda k: -np.cos(k + w))[:2]
        assert grid.trained() == sorted(chosen)
        several.add(tuple(chosen))
    assert len(several) > 2


def by_hand(rounds: int) -> np.ndarray:
    """Play pow-d of one node in three on quadratics: F_k = 0.5 sum_j h_kj (w_j - t_kj)^2, gradient steps."""
    h, goals, w = CURVATURES.numpy(), TARGETS.numpy(), np.zeros(2)
    for _ in range(rounds):
        worst = (0.5 * h * (w - goals) ** 2).sum(1).argmax()
        for _ in range(STEPS):
            w = w - RATE * h[worst] * (w - goals[worst])
    return w


def test_pow_d_agrees_with_plain_arithmetic_on_our_nodes() -> None:
    strategy = PowerOfChoice(nodes_per_round=1, candidates=3, asks=True)
    history = play(strategy, quadratics(), start(), range(1, 8))
    for t, (arrays, _) in enumerate(history, start=1):
        np.testing.assert_allclose(arrays["w"].numpy()[:, 0], by_hand(t), rtol=1e-10)
    assert len({tuple(np.round(arrays["w"].numpy()[:, 0], 3)) for arrays, _ in history}) == len(history)


def test_cpow_d_asks_on_some_examples() -> None:
    """Of each node's two rows one: F_k is h_kj (w_j - t_kj)^2 / 2 for the j that the seed draws."""
    strategy = PowerOfChoice(nodes_per_round=1, candidates=3, asks=True, loss_examples=1)
    play(strategy, quadratics(), start())
    terms = 0.5 * (CURVATURES * TARGETS**2).numpy()
    for k, got in strategy.answers.items():
        (j,) = generator(0, Purpose.QUESTION, server_round=1, partition_id=k).choice(2, 1, replace=False)
        assert got["start-loss"] == pytest.approx(terms[k, j])


@pytest.mark.parametrize("candidates", [1, 3])
def test_pow_d_without_further_candidates_is_fedavg_bit_for_bit(candidates: int) -> None:
    some = {"nodes_per_round": 3, "num_nodes": NODES, "seed": 4}
    one = PowerOfChoice(**some, candidates=candidates, asks=True)
    ours = play(one, Federation(measuring, NODES), START, range(1, 5))
    theirs = play(FedAvg(**some), Federation(measuring, NODES), START, range(1, 5))
    assert_same(ours[-1][0], theirs[-1][0])


def test_pow_d_goes_on_as_it_was() -> None:
    some = {"nodes_per_round": 2, "num_nodes": NODES, "candidates": 6, "asks": True}
    whole = play(PowerOfChoice(**some), Federation(measuring, NODES), START, range(1, 9))[-1][0]
    before, after = PowerOfChoice(**some), PowerOfChoice(**some)
    middle = play(before, Federation(measuring, NODES), START, range(1, 5))[-1][0]
    after.load_state_dict(before.state_dict())
    assert_same(play(after, Federation(measuring, NODES), middle, range(5, 9))[-1][0], whole)


def test_what_pow_d_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy\.loss_examples=3 .* null, as strategy\.asks=false"):
        PowerOfChoice(loss_examples=3)
    with pytest.raises(ValueError, match=r"strategy\.loss_examples=0 is out of range"):
        PowerOfChoice(loss_examples=0, asks=True)
    with pytest.raises(ValueError, match="privacy would not hold: nodes would answer a question"):
        PowerOfChoice(asks=True, privacy=CentralPrivacy(), weighting=Uniform())
