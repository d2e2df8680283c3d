"""Methods whose server divides by the number of nodes, while that number grows."""

import pytest
import torch
from federation import play
from test_scaffold import OPTIMUM, TARGETS, quadratics, start

from strategies import FedAvg, FedDyn, Scaffold


@pytest.mark.parametrize(
    "strategy", [Scaffold(), Scaffold(option=1), FedDyn(alpha=2.0)], ids=["option 2", "option 1", "feddyn"]
)
@pytest.mark.parametrize("alone", [1, 2, 4])
def test_a_node_that_joins_later_counts_as_one_that_was_there(strategy: FedAvg, alone: int) -> None:
    """What was divided by two at first is a third of the whole once there are three."""
    grid, arrays = quadratics(), start()
    nodes = grid.get_node_ids()
    strategy = type(strategy)(
        **{"option": strategy.option} if isinstance(strategy, Scaffold) else {"alpha": 2.0}
    )
    for server_round in range(1, 400):
        grid.get_node_ids = lambda r=server_round: nodes[: 2 if r <= alone else len(TARGETS)]  # type: ignore[method-assign]
        ((arrays, _),) = play(strategy, grid, arrays, (server_round,))
    torch.testing.assert_close(arrays.to_torch_state_dict()["w"].flatten(), OPTIMUM, rtol=0, atol=1e-9)
