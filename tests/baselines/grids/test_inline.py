"""The inline grid keeps Flower's contract: nodes and server share nothing but messages."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp

from baselines.grids import inline
from baselines.grids.inline import InlineGrid

pytestmark = pytest.mark.runtime

Handler = Callable[[Message, Context], RecordDict]


def grid_of(handler: Handler, num_nodes: int = 1) -> InlineGrid:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(handler(message, context), reply_to=message)

    return InlineGrid(app, num_nodes)


def request(node: int, content: RecordDict | None = None) -> Message:
    return Message(content or numbers(x=1.0), node, MessageType.TRAIN)


def numbers(**values: float) -> RecordDict:
    return RecordDict({"numbers": MetricRecord(dict(values))})


def ask(grid: InlineGrid, content: RecordDict | None = None) -> list[Message]:
    return grid.send_and_receive([request(node, content) for node in grid.get_node_ids()])


def test_a_node_changes_neither_the_servers_content_nor_the_next_nodes() -> None:
    seen: list[dict[str, object]] = []

    def meddle(message: Message, context: Context) -> RecordDict:
        content = message.content
        seen.append({name: dict(record) for name, record in content.items()})
        content["numbers"]["x"] = -1.0
        content["arrays"]["w"] = Array(np.ones(2))
        del content["config"]
        content["more"] = MetricRecord({"y": 2.0})
        return content

    content = RecordDict(
        {
            "numbers": MetricRecord({"x": 1.0}),
            "arrays": ArrayRecord({"w": Array(np.zeros(2))}),
            "config": ConfigRecord({"round": 1}),
        }
    )
    first, second = ask(grid_of(meddle, 2), content)
    assert seen[0] == seen[1]
    assert set(content) == {"numbers", "arrays", "config"}
    assert content["numbers"]["x"] == 1.0
    assert content["arrays"]["w"].numpy().tolist() == [0, 0]
    assert set(first.content) == set(second.content) == {"numbers", "arrays", "more"}


def test_the_server_cannot_reach_into_a_nodes_state() -> None:
    def keep(message: Message, context: Context) -> RecordDict:
        record = context.state.setdefault("kept", MetricRecord({"x": 1.0}))
        return RecordDict({"kept": record})

    grid = grid_of(keep)
    (reply,) = ask(grid)
    reply.content["kept"]["x"] = 9.0
    (reply,) = ask(grid)
    assert reply.content["kept"]["x"] == 1.0


def test_state_lives_on_and_is_each_nodes_own() -> None:
    def count(message: Message, context: Context) -> RecordDict:
        record = context.state.setdefault("count", MetricRecord({"n": 0}))
        record["n"] += 1 + int(context.node_config["partition-id"])
        return RecordDict({"count": MetricRecord(dict(record))})

    grid = grid_of(count, 3)
    ask(grid)
    assert [reply.content["count"]["n"] for reply in ask(grid)] == [2, 4, 6]


def test_a_node_that_raises_has_not_changed() -> None:
    def fail_late(message: Message, context: Context) -> RecordDict:
        record = context.state.setdefault("count", MetricRecord({"n": 0}))
        if message.content["numbers"]["x"] < 0:
            record["n"] = 100
            context.state["more"] = MetricRecord({"y": 1.0})
            raise OSError("the disk is full")
        record["n"] += 1
        return RecordDict(
            {"count": MetricRecord(dict(record)), "keys": ConfigRecord({"k": list(context.state)})}
        )

    grid = grid_of(fail_late)
    ask(grid)
    (failed,) = ask(grid, numbers(x=-1.0))
    assert failed.has_error()
    lines = (failed.error.reason or "").splitlines()
    assert lines[:2] == ["OSError: the disk is full", "Traceback (most recent call last):"]
    assert lines[-1] == lines[0]
    assert failed.metadata.src_node_id == grid.get_node_ids()[0]
    (reply,) = ask(grid)
    assert reply.content["count"]["n"] == 2
    assert reply.content["keys"]["k"] == ["count"]


def echo(message: Message, context: Context) -> RecordDict:
    return message.content


def test_pushed_messages_are_answered_once_each_by_their_ids() -> None:
    grid = grid_of(echo, 3)
    ids = list(grid.push_messages([request(node, numbers(x=float(node))) for node in grid.get_node_ids()]))
    assert len(set(ids)) == 3
    (second,) = grid.pull_messages([ids[1]])
    assert second.metadata.reply_to_message_id == ids[1]
    assert second.content["numbers"]["x"] == grid.get_node_ids()[1]
    rest = list(grid.pull_messages(ids))
    assert [reply.metadata.reply_to_message_id for reply in rest] == [ids[0], ids[2]]
    assert list(grid.pull_messages(ids)) == []


def test_a_late_reply_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(inline, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def dawdle(message: Message, context: Context) -> RecordDict:
        clock.now += 10.0 * int(context.node_config["partition-id"])
        return message.content

    grid = grid_of(dawdle, 3)
    messages = [request(node) for node in grid.get_node_ids()]
    in_time = grid.send_and_receive(messages, timeout=15)
    assert [reply.metadata.src_node_id for reply in in_time] == grid.get_node_ids()[:2]
    assert len(list(grid.send_and_receive(messages, timeout=None))) == 3


def test_messages_carry_the_ids_that_a_superlink_would_give_them() -> None:
    """Holds Flower's private stamping, on which the grid stands, to what the public metadata shows."""
    ids: list[str] = []

    def note(message: Message, context: Context) -> RecordDict:
        ids.append(message.metadata.message_id)
        assert message.metadata.dst_node_id == context.node_id
        return message.content

    grid = grid_of(note, 2)
    replies = ask(grid) + ask(grid)
    assert len({*ids, *(reply.metadata.message_id for reply in replies)}) == 8
    assert all(ids)
    assert [reply.metadata.reply_to_message_id for reply in replies] == ids
    assert [reply.metadata.src_node_id for reply in replies] == grid.get_node_ids() * 2
    server = request(grid.get_node_ids()[0]).metadata.src_node_id
    assert {reply.metadata.dst_node_id for reply in replies} == {server}
    assert server not in grid.get_node_ids()


def test_a_node_knows_its_partition_and_the_number_of_partitions() -> None:
    def tell(message: Message, context: Context) -> RecordDict:
        return RecordDict({"config": ConfigRecord(dict(context.node_config))})

    configs = [dict(reply.content["config"]) for reply in ask(grid_of(tell, 2))]
    assert configs == [{"partition-id": k, "num-partitions": 2} for k in (0, 1)]


def test_a_message_type_without_a_function_is_answered_with_an_error() -> None:
    grid = grid_of(echo)
    message = Message(numbers(x=1.0), grid.get_node_ids()[0], MessageType.EVALUATE)
    (reply,) = grid.send_and_receive([message])
    assert reply.has_error()
