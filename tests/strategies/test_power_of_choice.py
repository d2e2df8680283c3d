"""Power-of-choice: who trains, by hand and beside a plain loop; its reduction; and that it goes on as it was."""

import numpy as np
import pytest
from flwr.app import RecordDict

from helpers.federation import Federation, answer, assert_same, play, record, round_of, sent_model
from strategies import FedAvg, Grouped, PowerOfChoice

NODES = 8
START = record({"w": np.zeros(2)})


def loss_of(partition_id: int, server_round: int) -> float:
    return float(np.random.default_rng([partition_id, server_round]).random())


def node(partition_id: int, content: RecordDict) -> RecordDict:
    """Return a model that depends on the partition, and a loss that depends on the round, too."""
    model = {"w": sent_model(content)["w"] + partition_id}
    return answer(model, partition_id + 1, loss=loss_of(partition_id, round_of(content)))


def asked(strategy: FedAvg | PowerOfChoice, rounds: int) -> list[list[int]]:
    """Return who trains in each round."""
    grid, found = Federation(node, NODES), []
    model = START
    for t in range(1, rounds + 1):
        ((model, _),) = play(strategy, grid, model, (t,))
        found.append(grid.trained())
    return found


def test_those_with_the_largest_last_loss_train() -> None:
    """All are candidates: the four that have not trained go first, then the losses decide."""
    strategy = PowerOfChoice(nodes_per_round=4, num_nodes=NODES, candidates=NODES)
    first, second, *later = asked(strategy, 6)
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
