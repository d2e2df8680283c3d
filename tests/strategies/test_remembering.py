"""Strategies whose nodes remember: restored with the nodes' states they go on as if nothing had been."""

from collections.abc import Callable

import pytest
from flwr.app import RecordDict

from helpers.federation import assert_same, play
from helpers.quadratics import quadratics, start
from strategies import Constant, FedDyn, Scaffnew, Scaffold
from strategies.core.stateful_clients import StatefulClientsStrategy


@pytest.mark.parametrize(
    "make",
    [lambda: Scaffold(step_size=Constant(0.5)), lambda: FedDyn(alpha=2.0), Scaffnew],
    ids=["scaffold", "feddyn", "scaffnew"],
)
def test_a_restored_strategy_goes_on(make: Callable[[], StatefulClientsStrategy]) -> None:
    grid, first, second = quadratics(), make(), make()
    middle = play(first, grid, start(), range(1, 4))[-1][0]
    second.load_state_dict(first.state_dict())
    states = {node: RecordDict(dict(grid.context(node).state)) for node in grid.get_node_ids()}
    expected = play(first, grid, middle, range(4, 7))[-1][0]
    for node, state in states.items():
        grid.context(node).state = state
    assert_same(play(second, grid, middle, range(4, 7))[-1][0], expected)
