"""Methods whose server divides by the number of nodes, while that number grows."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from helpers.federation import play
from helpers.quadratics import OPTIMUM, quadratics, start
from strategies import FedDyn, Scaffnew, Scaffold
from strategies.core.stateful_clients import StatefulClientsStrategy

METHODS = {
    "option 2": Scaffold,
    "option 1": partial(Scaffold, option=1),
    "feddyn": partial(FedDyn, alpha=2.0),
    "scaffnew": partial(Scaffnew, probability=0.3),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("alone", [1, 2, 4])
def test_a_node_that_joins_later_counts_as_one_that_was_there(
    method: Callable[[], StatefulClientsStrategy], alone: int
) -> None:
    """What was divided by two at first is a third of the whole once there are three."""
    strategy, grid, arrays = method(), quadratics(), start()
    nodes = grid.get_node_ids()
    for server_round in range(1, 400):
        here = nodes[:2] if server_round <= alone else nodes
        grid.get_node_ids = lambda here=here: here  # type: ignore[method-assign]
        ((arrays, _),) = play(strategy, grid, arrays, (server_round,))
    torch.testing.assert_close(arrays.to_torch_state_dict()["w"].flatten(), OPTIMUM, rtol=0, atol=1e-9)
