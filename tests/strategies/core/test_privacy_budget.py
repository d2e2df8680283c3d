"""Budget: what a run has spent is what the node that trained most has."""

import numpy as np
import pytest
from flwr.app import RecordDict

from helpers.federation import Federation, Model, answer, play, record, sent_model
from strategies import AdaptivePrivacy, CentralPrivacy, FedAvg, LocalPrivacy, Uniform
from strategies.parts.privacy import epsilon

UNIFORM = {"weighting": Uniform()}


def model() -> Model:
    return {"w": np.zeros(4, np.float32)}


def still(partition_id: int, content: RecordDict) -> RecordDict:
    """Send back what came: every pseudo-gradient is 0."""
    return answer(sent_model(content))


def costs(strategy: FedAvg, rounds: int, nodes: int = 4) -> list[float]:
    history = play(strategy, Federation(still, nodes), record(model()), range(1, rounds + 1))
    return [metrics["epsilon"] for _, metrics in history]


def test_where_all_nodes_train_every_round_costs() -> None:
    actual = costs(FedAvg(privacy=CentralPrivacy(noise_multiplier=2, delta=1e-6), **UNIFORM), 3)
    assert actual == [epsilon(2, rounds, 1e-6) for rounds in (1, 2, 3)]


def test_locally_a_node_can_move_twice_as_far() -> None:
    assert costs(FedAvg(privacy=LocalPrivacy(noise_multiplier=2), **UNIFORM), 2)[-1] == epsilon(1, 2, 1e-5)


def test_a_sampled_node_pays_for_its_own_rounds() -> None:
    strategy = FedAvg(nodes_per_round=1, query_partitions=True, privacy=CentralPrivacy(), **UNIFORM)
    grid, arrays, trained, epsilons = Federation(still, 4), record(model()), [], []
    for server_round in range(1, 9):
        ((arrays, metrics),) = play(strategy, grid, arrays, (server_round,))
        trained += grid.trained()
        epsilons.append(metrics["epsilon"])
    most = [max(trained[:n].count(k) for k in range(4)) for n in range(1, 9)]
    assert epsilons == [epsilon(1, rounds, 1e-5) for rounds in most]
    assert most[-1] < 8


def test_a_node_that_noises_pays_also_for_what_was_left_out() -> None:
    def faulty(partition_id: int, content: RecordDict) -> RecordDict:
        bad = partition_id == 1
        return answer({k: v * float("nan") if bad else v for k, v in sent_model(content).items()})

    for privacy, paid in ((CentralPrivacy(), 2), (LocalPrivacy(), 2)):
        strategy = FedAvg(privacy=privacy, **UNIFORM)
        play(strategy, Federation(faulty, 2), record(model()), (1, 2))
        assert strategy.accountant.rounds == paid
    only_failed = FedAvg(privacy=LocalPrivacy(), max_failed_rounds=9, **(UNIFORM | {"num_nodes": 1}))
    play(only_failed, Federation(lambda k, content: faulty(1, content), 1), record(model()), (1, 2, 3))
    assert only_failed.accountant.rounds == 3


def test_the_run_ends_before_the_round_that_would_cost_more() -> None:
    limit = epsilon(1, 3, 1e-5) + 0.01
    strategy = FedAvg(privacy=CentralPrivacy(stop_at_epsilon=limit), **UNIFORM)
    grid = Federation(still, 2)
    history = play(strategy, grid, record(model()), range(1, 7))
    assert [metrics.get("epsilon") for _, metrics in history[:3]] == [
        epsilon(1, n, 1e-5) for n in (1, 2, 3)
    ]
    assert [dict(metrics) for _, metrics in history[3:]] == [{}, {}, {}]
    assert len(grid.trained()) == 6
    assert strategy.stop_reason.endswith("a further round would cost epsilon 9.997")


def test_it_resumes_where_it_stood() -> None:
    def strategy() -> FedAvg:
        return FedAvg(privacy=AdaptivePrivacy(noise_seed=3), **UNIFORM)

    whole, first, second = strategy(), strategy(), strategy()
    expected = play(whole, Federation(still, 3), record(model()), (1, 2, 3, 4))
    arrays = play(first, Federation(still, 3), record(model()), (1, 2))[-1][0]
    second.load_state_dict(first.state_dict())
    actual = play(second, Federation(still, 3), arrays, (3, 4))
    for (one, ours), (other, theirs) in zip(actual, expected[2:], strict=True):
        assert [a.data for a in one.values()] == [a.data for a in other.values()]
        assert dict(ours) == dict(theirs)


@pytest.mark.parametrize(("seed", "paid"), [(None, 3), (3, 2)])
def test_a_round_that_is_taken_again_with_other_noise_is_paid_twice(seed: int | None, paid: int) -> None:
    first, second = (FedAvg(privacy=CentralPrivacy(noise_seed=seed), **UNIFORM) for _ in range(2))
    arrays = play(first, Federation(still, 2), record(model()), (1,))[-1][0]
    second.load_state_dict(first.state_dict())
    assert play(second, Federation(still, 2), arrays, (2,))[-1][1]["epsilon"] == epsilon(1, paid, 1e-5)


def test_a_checkpoint_from_before_there_was_privacy_still_loads() -> None:
    first, second = FedAvg(), FedAvg()
    play(first, Federation(still, 2), record(model()))
    state = first.state_dict()
    del state["privacy"]
    second.load_state_dict(state)
    assert second.accountant.rounds == 1
