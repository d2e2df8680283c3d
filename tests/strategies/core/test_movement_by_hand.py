"""Rounds in which no node moves the model: named once, and three at the start end the run."""

import pytest
import torch
from torch import Tensor

from strategies import TooManyFailedRounds
from strategies.core.strategy import StallDetector

ABOVE_0, ALL_0, ONE_0 = torch.tensor([0.1, 0.2]), torch.zeros(2), torch.tensor([0.0, 0.1])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("rates", [ABOVE_0, ONE_0], ids=["all", "one"])
def test_the_third_still_round_ends_the_run_and_the_first_is_named(
    rates: Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    movement = StallDetector()
    movement.count_round(1, False, rates)
    movement.count_round(2, False, rates)
    with pytest.raises(TooManyFailedRounds, match="no node has moved any parameter in 3 rounds: look"):
        movement.count_round(3, False, rates)
    (line,) = warnings(caplog)
    assert line.startswith("round 1: no node has moved any parameter: look for a learning rate")


def test_a_learning_rate_of_0_is_a_choice(caplog: pytest.LogCaptureFixture) -> None:
    movement = StallDetector()
    for server_round in range(1, 6):
        movement.count_round(server_round, False, ALL_0)
    assert movement.state_dict() == {"seen": False, "still": 0, "named": False}
    assert not caplog.records


def test_where_nodes_do_not_tell_their_rates_it_is_named_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    movement = StallDetector()
    for server_round in range(1, 6):
        movement.count_round(server_round, False, None)
    assert movement.state_dict() == {"seen": False, "still": 5, "named": True}
    assert len(warnings(caplog)) == 1


def test_once_moved_a_model_may_stand_still(caplog: pytest.LogCaptureFixture) -> None:
    movement = StallDetector()
    movement.count_round(1, False, ABOVE_0)
    movement.count_round(2, True, ABOVE_0)
    for server_round in range(3, 8):
        movement.count_round(server_round, False, ABOVE_0)
    assert movement.state_dict() == {"seen": True, "still": 6, "named": True}
    assert len(warnings(caplog)) == 1


def test_a_resumed_run_counts_on(caplog: pytest.LogCaptureFixture) -> None:
    first, second = StallDetector(), StallDetector()
    first.count_round(1, False, ABOVE_0)
    first.count_round(2, False, ABOVE_0)
    second.load_state_dict(first.state_dict())
    with pytest.raises(TooManyFailedRounds):
        second.count_round(3, False, ABOVE_0)
    assert len(warnings(caplog)) == 1
