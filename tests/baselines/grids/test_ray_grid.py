"""A round's model goes to Ray's object store once, however many nodes train."""

import pickle
import sys
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from baselines.grids.inline import InlineGrid
from baselines.grids.ray import RayGrid
from baselines.runtimes import ray as ray_module
from clients import client_app

NODES = 3


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """An object store of bytes, in place of Ray's."""
    kept: dict[str, bytes] = {}

    def put(record: ArrayRecord) -> str:
        kept[f"reference {len(kept)}"] = pickle.dumps(record)
        return f"reference {len(kept) - 1}"

    fake = SimpleNamespace(put=put, get=lambda reference: pickle.loads(kept[reference]))
    monkeypatch.setitem(sys.modules, "ray", fake)
    ray_module._received.cache_clear()
    return kept


def pickled(monkeypatch: pytest.MonkeyPatch, contents: list[RecordDict]) -> list[bytes]:
    """Return what travels of messages with these contents, pickled one by one as Ray does."""
    grid = InlineGrid(client_app(lambda *_: None), len(contents))  # type: ignore[arg-type,return-value]
    sent: list[Message] = []
    monkeypatch.setattr(grid, "push_messages", sent.extend)
    nodes = grid.get_node_ids()
    RayGrid(grid, Event()).push_messages(
        [Message(content, node, "train") for content, node in zip(contents, nodes, strict=True)]
    )
    return [pickle.dumps(message.content) for message in sent]


def received(monkeypatch: pytest.MonkeyPatch, contents: list[RecordDict]) -> list[RecordDict]:
    return [pickle.loads(data) for data in pickled(monkeypatch, contents)]


def record(value: float) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.full(4, value)), "b": Array(np.zeros(1))})


def test_one_round_is_stored_once(monkeypatch: pytest.MonkeyPatch, store: dict[str, bytes]) -> None:
    content = RecordDict({"arrays": record(2), "config": ConfigRecord({"server-round": 1})})
    arrived = received(monkeypatch, [content] * NODES)
    assert len(store) == 1
    for each in arrived:
        assert type(each.array_records["arrays"]) is ArrayRecord
        np.testing.assert_array_equal(each.array_records["arrays"]["w"].numpy(), np.full(4, 2.0))
        assert each.config_records["config"]["server-round"] == 1
    del arrived[0].array_records["arrays"]["w"]  # what a node does to its message is its own affair
    assert list(arrived[1].array_records["arrays"]) == ["w", "b"]


def test_different_models_stay_apart(monkeypatch: pytest.MonkeyPatch, store: dict[str, bytes]) -> None:
    contents = [RecordDict({"arrays": record(k), "control": record(-k)}) for k in range(NODES)]
    arrived = received(monkeypatch, contents)
    assert len(store) == 2 * NODES
    for k, each in enumerate(arrived):
        assert each.array_records["arrays"]["w"].numpy()[0] == k
        assert each.array_records["control"]["w"].numpy()[0] == -k


def test_messages_are_small(monkeypatch: pytest.MonkeyPatch, store: dict[str, bytes]) -> None:
    big = RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(100_000))})})
    (data,) = pickled(monkeypatch, [big])
    assert len(data) < 5_000
