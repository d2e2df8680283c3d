"""FedDyn, server and node together, on SCAFFOLD's quadratics, whose optimum is known."""

from typing import Any

import numpy as np
import pytest
import torch

from helpers.federation import assert_same, play
from helpers.quadratics import CURVATURES, OPTIMUM, RATE, STEPS, TARGETS, quadratics, reached, start
from strategies import AgreementMask, FedAvg, FedDyn, Median, Uniform


def by_hand(rounds: int, alpha: float) -> np.ndarray:
    """Return w after so many rounds of Algorithm 1, written out in plain arithmetic, all nodes in each."""
    h, t, w = CURVATURES.numpy(), TARGETS.numpy(), np.zeros(2)
    own, server = np.zeros((3, 2)), np.zeros(2)
    for _ in range(rounds):
        ends = []
        for k in range(3):
            y = w.copy()
            for _ in range(STEPS):
                y = y - RATE * (h[k] * (y - t[k]) - own[k] + alpha * (y - w))
            ends.append(y)
        own = own - alpha * (np.array(ends) - w)
        server = server - alpha * (np.array(ends) - w).mean(0)
        w = np.mean(ends, axis=0) - server / alpha
    return w


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_three_rounds_by_hand(alpha: float) -> None:
    np.testing.assert_allclose(reached(FedDyn(alpha=alpha), 3), by_hand(3, alpha), rtol=1e-12)


@pytest.mark.slow
def test_reaches_the_optimum_that_fedavg_misses() -> None:
    fedavg = reached(FedAvg(weighting=Uniform()), 400)
    assert np.abs(fedavg - OPTIMUM.numpy()).max() > 0.05
    np.testing.assert_allclose(reached(FedDyn(alpha=2.0), 400), OPTIMUM.numpy(), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [{"mask": AgreementMask(0.8)}, {"aggregation": Median()}], ids=["mask", "median"]
)
def test_it_does_so_with_other_parts_of_the_step(part: dict[str, Any]) -> None:
    np.testing.assert_allclose(reached(FedDyn(alpha=2.0, **part), 800), OPTIMUM.numpy(), atol=1e-6)


def test_without_strength_it_is_fedavg_bit_for_bit() -> None:
    one = play(FedDyn(alpha=0), quadratics(), start(), range(1, 4))[-1][0]
    assert_same(one, play(FedAvg(weighting=Uniform()), quadratics(), start(), range(1, 4))[-1][0])


def test_sampled_rounds_count_a_share() -> None:
    """Two of three nodes: s = (2/3) D after the first round, so that w = -(5/3) D."""
    alone = play(FedAvg(weighting=Uniform(), nodes_per_round=2, num_nodes=3), quadratics(), start())[0][0]
    actual = play(FedDyn(alpha=1e-9, nodes_per_round=2, num_nodes=3), quadratics(), start())[0][0]
    np.testing.assert_allclose(actual["w"].numpy(), 5 / 3 * alone["w"].numpy(), rtol=1e-6)


def test_the_servers_sum_is_the_mean_of_what_the_nodes_keep_also_where_a_reply_is_lost() -> None:
    strategy, grid = FedDyn(alpha=2.0, num_nodes=3), quadratics()
    arrays = start()
    for server_round in range(1, 6):
        lose = server_round in (2, 3)
        ((arrays, _),) = play(
            strategy, grid, arrays, (server_round,), order=lambda r, lose=lose: r[1:] if lose else r
        )
    kept = [grid.context(node).state.array_records["control"]["w"].numpy() for node in grid.get_node_ids()]
    mean = torch.from_numpy(np.mean(kept, axis=0)).flatten()
    torch.testing.assert_close(2.0 / 3 * strategy.state_dict()["sums"], mean, rtol=1e-12, atol=1e-12)


def test_a_round_without_a_reply_is_one_that_failed() -> None:
    ((arrays, _),) = play(FedDyn(alpha=2.0, num_nodes=3), quadratics(), start(), order=lambda replies: [])
    assert_same(arrays, start())


def test_a_negative_strength_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy\.alpha=-1"):
        FedDyn(alpha=-1)
