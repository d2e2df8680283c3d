"""A model that nobody moves is named once, and ends a run that begins so."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import RecordDict

from helpers.federation import Federation, answer, play, record, round_of, sent_model
from strategies import FedAvg, Grouped, Scaffold, TooManyFailedRounds

MODEL = record({"w": np.ones((2, 2), np.float32), "running_mean": np.zeros(2, np.float32)})
NOTICE = "no node has moved any parameter: look for a learning rate that is too small"


def moving_in(
    *rounds: int, rate: float | None = 0.1, who: int = 1
) -> Callable[[int, RecordDict], RecordDict]:
    """Return nodes of which one moves one parameter, in these rounds only; its sum stays as it was."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        model = {name: values.copy() for name, values in sent_model(content).items()}
        if round_of(content) in rounds and partition_id == who:
            model["w"] += np.array([[1, -1], [2, -2]], np.float32)
        model["running_mean"] += 1  # running statistics move by themselves
        metrics = {} if rate is None else {"learning-rate": rate}
        reply = answer(model, **metrics)
        if "control" in content:
            reply["control"] = record({"w": np.zeros((2, 2), np.float32)})
        return reply

    return node


def notices(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "moved any parameter" in r.getMessage()]


@pytest.mark.parametrize("strategy", [FedAvg, Scaffold])
def test_three_first_rounds_without_movement_end_the_run(
    strategy: Callable[[], FedAvg], caplog: pytest.LogCaptureFixture
) -> None:
    server, grid = strategy(), Federation(moving_in(), 2)
    play(server, grid, MODEL, (1, 2))
    with pytest.raises(TooManyFailedRounds, match="no node has moved any parameter in 3 rounds: look for"):
        play(server, grid, MODEL, (3,))
    (line,) = notices(caplog)
    assert line.startswith(f"round 1: {NOTICE}")


def test_at_a_rate_of_0_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    play(FedAvg(), Federation(moving_in(rate=0.0), 2), MODEL, range(1, 7))
    assert not notices(caplog)


def test_where_the_rate_is_unknown_the_run_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    play(FedAvg(), Federation(moving_in(rate=None), 2), MODEL, range(1, 7))
    assert len(notices(caplog)) == 1


def test_values_that_cancel_out_are_movement(caplog: pytest.LogCaptureFixture) -> None:
    play(FedAvg(), Federation(moving_in(1, 2, 3, 4), 2), MODEL, range(1, 5))
    assert not notices(caplog)


@pytest.mark.parametrize("moves", [1, 2, 3])
def test_once_anything_has_moved_the_run_goes_on(moves: int, caplog: pytest.LogCaptureFixture) -> None:
    play(FedAvg(), Federation(moving_in(moves), 2), MODEL, range(1, 10))
    assert len(notices(caplog)) == 1  # of the first round that did not, and of none after


def test_the_movement_of_a_node_that_is_left_out_is_none(caplog: pytest.LogCaptureFixture) -> None:
    moves = moving_in(*range(9))

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        reply = moves(partition_id, content)
        if partition_id == 1:
            reply["metrics"]["num-examples"] = float("nan")
        return reply

    with pytest.raises(TooManyFailedRounds, match="no node has moved"):
        play(FedAvg(), Federation(node, 2), MODEL, (1, 2, 3))


def test_a_resumed_run_has_counted_the_rounds_before(caplog: pytest.LogCaptureFixture) -> None:
    first, second, moved = FedAvg(), FedAvg(), FedAvg()
    grid = Federation(moving_in(), 2)
    play(first, grid, MODEL, (1, 2))
    second.load_state_dict(first.state_dict())
    assert (
        second.state_dict()["movement"]
        == first.state_dict()["movement"]
        == {
            "seen": False,
            "still": 2,
            "named": True,
        }
    )
    caplog.clear()
    with pytest.raises(TooManyFailedRounds):
        play(second, grid, MODEL, (3,))
    assert not notices(caplog)  # it was said before
    play(moved, Federation(moving_in(1), 2), MODEL, (1,))
    second.load_state_dict(moved.state_dict())
    play(second, grid, MODEL, range(2, 8))


GROUPS = {"first": (0,), "second": (1,), "third": (2,), "fourth": (3,), "fifth": (4,)}


def test_a_group_that_stands_still_is_named_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    strategy = Grouped(inner=FedAvg(), groups=GROUPS)
    history = play(strategy, Federation(moving_in(*range(9)), 5), MODEL, range(1, 6))
    assert len(history) == 5
    (line,) = notices(caplog)
    assert line.startswith("round 1: no node of first, third, fourth and 1 more has moved any")


def test_groups_that_all_stand_still_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    strategy = Grouped(inner=FedAvg(), groups=GROUPS)
    play(strategy, Federation(moving_in(), 5), MODEL, (1, 2))
    restored = Grouped(inner=FedAvg(), groups=GROUPS)
    restored.load_state_dict(strategy.state_dict())
    with pytest.raises(TooManyFailedRounds, match="no node has moved any parameter in 3 rounds"):
        play(restored, Federation(moving_in(), 5), MODEL, (3,))
    assert len(notices(caplog)) == 1
