"""Clocks: profiles by seed and partition, arrival times by hand, windows, and traces."""

import math
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict

from helpers.federation import answer, record
from strategies import ConstantClock, LognormalClock, TraceClock
from strategies.core.clock import Profile
from strategies.shared.arrays import count_message_bytes
from strategies.shared.flower_private import become_server

TRACE = "node,seconds_per_step,bytes_per_second,available_from,available_until\n"


def exchange(**metrics: float) -> tuple[Message, Message]:
    """Return a message to a node, and its reply."""
    become_server()
    model = {"w": np.zeros(3, np.float32)}
    message = Message(RecordDict({"arrays": record(model)}), 1, "train")
    return message, Message(answer(model, 7, **metrics), 1, "train")


def test_an_arrival_by_hand() -> None:
    message, reply = exchange(**{"local-steps": 4})
    size = count_message_bytes(message) + count_message_bytes(reply)
    arrays = 2 * record({"w": np.zeros(3, np.float32)}).count_bytes()
    assert size == arrays + reply.content.metric_records["metrics"].count_bytes()
    clock = ConstantClock(seconds_per_step=0.5, bytes_per_second=size / 3)
    assert clock.arrival(0, 5, 10.0, message, reply) == pytest.approx(10 + 4 * 0.5 + 3, rel=1e-15)
    assert ConstantClock(seconds_per_step=0.5, bytes_per_second=None).arrival(0, 5, 1, message, reply) == 3


def test_examples_count_where_nobody_tells_steps() -> None:
    message, reply = exchange()
    assert ConstantClock(bytes_per_second=None).arrival(0, 0, 0, message, reply) == 7
    nothing = Message(RecordDict({"metrics": MetricRecord()}), 1, "train")
    assert ConstantClock(bytes_per_second=None).arrival(0, 0, 2, message, nothing) == 2


def test_lognormal_speeds_follow_from_seed_and_partition() -> None:
    clock = LognormalClock(seconds_per_step=2.0, bytes_per_second=100, spread=0.7, bandwidth_spread=0.3)
    profiles = [clock.profile(3, k) for k in range(4000)]
    assert profiles[17] == clock.profile(3, 17) != clock.profile(4, 17)
    for values, median, spread in (
        ([p.seconds_per_step for p in profiles], 2.0, 0.7),
        ([p.bytes_per_second for p in profiles], 100, 0.3),
    ):
        logs = np.log(values)
        assert abs(np.mean(logs) - math.log(median)) < 4 * spread / 4000**0.5
        assert abs(np.std(logs) / spread - 1) < 0.05
    speeds = np.log([[p.seconds_per_step, p.bytes_per_second] for p in profiles])
    assert abs(np.corrcoef(speeds.T)[0, 1]) < 0.06


def test_without_a_spread_it_is_constant() -> None:
    some = {"seconds_per_step": 0.3, "bytes_per_second": 50.0, "available_share": 0.4}
    flat = LognormalClock(**some, spread=0, bandwidth_spread=0)
    assert [flat.profile(1, k) for k in range(9)] == [ConstantClock(**some).profile(1, k) for k in range(9)]


@pytest.mark.parametrize(
    ("now", "expected"),
    [(0, 10), (10, 10), (15, 15), (20, 30), (39.5, 39.5), (40, 110), (112, 112), (240, 310)],
)
def test_a_node_begins_when_it_is_available(now: float, expected: float) -> None:
    profile = Profile(1.0, math.inf, ((10, 20), (30, 40)), period=100)
    assert profile.next_start(now) == expected


def test_a_window_may_go_beyond_its_period() -> None:
    profile = Profile(1.0, math.inf, ((8.0, 12.0),), period=10)
    assert [profile.next_start(now) for now in (0, 1.9, 2, 7, 8, 11, 12)] == [0, 1.9, 8, 8, 8, 11, 18]


def test_without_a_period_a_node_may_not_come_back() -> None:
    profile = Profile(1.0, math.inf, ((2, 3),))
    assert [profile.next_start(now) for now in (0, 2.5, 3)] == [2, 2.5, math.inf]


def test_nodes_are_available_for_their_share_of_the_time() -> None:
    clock = ConstantClock(available_share=0.25, available_period=100)
    profiles = [clock.profile(0, k) for k in range(2000)]
    for now in (0.0, 33.0, 1070.0):
        assert abs(sum(p.next_start(now) == now for p in profiles) / 2000 - 0.25) < 0.04
        assert all(now <= p.next_start(now) < now + 75 for p in profiles)


def test_a_trace_is_read(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(f"{TRACE}0,0.5,1000,,\n1,2,,5,10\n1,2,,20,30\n")
    clock = TraceClock(path=str(file), period=100)
    assert clock.profile(0, 0) == Profile(0.5, 1000, (), 100)
    assert clock.profile(9, 1) == Profile(2.0, math.inf, ((5, 10), (20, 30)), 100)
    clock.require_nodes(2)
    with pytest.raises(ValueError, match=r"trace\.csv has no row for node 2 of 4"):
        clock.require_nodes(4)
    file.write_text("node,seconds_per_step,bytes_per_second\n0,1,1\n")
    assert TraceClock(path=str(file)).profile(0, 0) == Profile(1.0, 1.0)


@pytest.mark.parametrize(
    "row",
    ["0,0,1,,", "0,1,-1,,", "x,1,1,,", "-1,1,1,,", "0,1,1,9,2", "0,1,1,9,", "0,1,1,9,200", "0,nan,1,,"],
)
def test_a_row_that_is_none_is_named(row: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(f"{TRACE}0,1,1,,\n{row}\n")
    with pytest.raises(
        ValueError, match=r"clock\.path=.*trace\.csv, line 3: expected numbers above 0 under node,"
    ):
        TraceClock(path=str(file), period=100).require_nodes(1)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("0,2,1,5,9", "another speed or bandwidth than in the node's rows above"),
        ("0,1,3,5,9", "another speed or bandwidth than in the node's rows above"),
        ("0,1,1,,", "two rows of a node, and one has no window"),
    ],
)
def test_rows_of_a_node_that_contradict_are_named(row: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(f"{TRACE}0,1,1,0,4\n{row}\n")
    with pytest.raises(ValueError, match=rf"trace\.csv, line 3: .*\({reason}\)$"):
        TraceClock(path=str(file)).require_nodes(1)


def test_what_is_no_clock_is_refused() -> None:
    with pytest.raises(ValueError, match=r"clock\.path=nowhere\.csv cannot be read"):
        TraceClock(path="nowhere.csv").profile(0, 0)
    for name in ("seconds_per_step", "bytes_per_second", "available_share", "available_period", "deadline"):
        with pytest.raises(ValueError, match=rf"clock\.{name}=0 is out of range"):
            ConstantClock(**{name: 0})
    with pytest.raises(ValueError, match=r"clock\.keep_first=0 is out of range: expected a whole number"):
        ConstantClock(keep_first=0)
    with pytest.raises(ValueError, match=r"clock\.spread=-1 is out of range"):
        LognormalClock(spread=-1)
