"""Replies are fetched as they come, each once, and not beyond the time limit."""

import time
from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from baselines.grids.inline import InlineGrid
from baselines.grids.superlink import PollingGrid
from strategies.shared.flower_private import SUPERLINK_NODE_ID, Run

pytestmark = pytest.mark.runtime

app = ClientApp()


@app.query()
@app.train()
def train(message: Message, context: Context) -> Message:
    return Message(RecordDict({"numbers": MetricRecord({"x": 1.0})}), reply_to=message)


class Slow(InlineGrid):
    """A grid whose k-th reply appears ``delays[k]`` s after it was asked for."""

    def __init__(self, delays: list[float]) -> None:
        super().__init__(app, len(delays))
        self.delays = delays
        self.looks = 0
        self.due: dict[str, float] = {}

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = super().push_messages(messages)
        self.due |= {key: time.monotonic() + delay for key, delay in zip(ids, self.delays, strict=False)}
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        self.looks += 1
        now = time.monotonic()
        return super().pull_messages([key for key in message_ids if self.due[key] <= now])


def ask(
    grid: Slow,
    timeout: float | None,
    quorum: int | None = None,
    deadline: float | None = None,
    kind: str = MessageType.TRAIN,
) -> list[int]:
    messages = [Message(RecordDict(), node, kind) for node in grid.get_node_ids()]
    polling = PollingGrid(grid, quorum, deadline)
    return [reply.metadata.src_node_id for reply in polling.send_and_receive(messages, timeout=timeout)]


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_all_replies_come_in_the_order_of_their_arrival(timeout: float | None) -> None:
    grid = Slow([0.2, 0.0, 0.1])
    first, second, third = grid.get_node_ids()
    assert ask(grid, timeout) == [second, third, first]
    assert 3 <= grid.looks < 45  # no look within 5 ms of the last


def test_pauses_grow_with_the_time_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    for due in (0.1, 3.0, 600.0):
        clock[0], grid = 0.0, Slow([due])
        assert len(ask(grid, None)) == 1
        assert due <= clock[0] <= due + max(0.005, min(due / 40, 0.5)) + 1e-9
        assert grid.looks <= 40 + 40 * np.log(max(1, due / 0.2)) + due / 0.5


def test_what_is_not_there_in_time_is_left_out() -> None:
    grid = Slow([0.0, 3600.0])
    started = time.monotonic()
    assert ask(grid, 0.3) == grid.get_node_ids()[:1]
    assert 0.3 <= time.monotonic() - started < 30


def test_no_message_no_wait() -> None:
    assert PollingGrid(InlineGrid(app, 0)).send_and_receive([]) == []


def test_it_tells_what_flower_runs_and_the_commit_where_it_was_told() -> None:
    grid = InlineGrid(app, 0)
    grid.set_run(Run.create_empty(run_id=7))
    fields = {"run_id": "7", "app_hash": ""}
    assert PollingGrid(grid).deployment() == fields
    assert PollingGrid(grid, commit="abc").deployment() == fields | {"git_commit": "abc"}


@pytest.mark.parametrize(
    ("delays", "quorum", "come", "lasts"),
    [
        ([0.0, 1.0, 9.0], 2, 2, 5),  # enough before the deadline: until it, for more may come
        ([0.0, 7.0, 9.0], 2, 2, 7),  # enough after it
        ([0.0, 30.0, 30.0], 2, 1, 20),  # never: the time limit
        ([0.0, 1.0, 2.0], 2, 3, 2),  # all
    ],
)
def test_a_round_goes_on_with_a_quorum(
    delays: list[float], quorum: int, come: int, lasts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    assert len(ask(Slow(delays), 20.0, quorum, 5.0)) == come
    assert lasts <= clock[0] <= lasts + 0.5


def test_a_quorum_is_not_for_the_question_who_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    assert len(ask(Slow([0.0, 9.0]), 20.0, 1, 5.0, MessageType.QUERY)) == 2


@pytest.mark.parametrize(("count", "lasts"), [(0, 0), (1, 2), (2, 4), (3, 8)])
def test_arrivals_are_awaited_until_there_are_enough(
    count: int, lasts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is late has the SuperLink's error after the time limit; what is enough comes in order."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    grid = Slow([4.0, 2.0, 30.0])
    first, second, _ = grid.get_node_ids()
    polling = PollingGrid(grid)
    messages = [Message(RecordDict(), node, MessageType.TRAIN) for node in grid.get_node_ids()]

    def receive(messages: list[Message], count: int) -> list[Message]:
        return polling.receive_arrivals(messages, lambda replies: len(replies) >= count, 8.0)

    replies = receive(messages, count)
    assert [reply.metadata.src_node_id for reply in replies] == [second, first, SUPERLINK_NODE_ID][:count]
    assert lasts <= clock[0] <= lasts + 0.5
    rest = receive([], 3 - count)  # of the earlier messages
    assert [reply.metadata.src_node_id for reply in (*replies, *rest)] == [second, first, SUPERLINK_NODE_ID]
    last = (*replies, *rest)[-1]
    assert last.error.reason == "did not answer in time"
    assert last.metadata.reply_to_message_id == messages[2].metadata.message_id
    clock[0] = 40.0
    assert receive([], 1) == []  # nobody waits for it any more
