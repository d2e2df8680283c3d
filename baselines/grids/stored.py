"""How records travel on Ray: arrays straight to where they go, and what messages have in common once."""

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from pickle import PickleBuffer
from typing import Any

import numpy as np
import ray
from flwr.app import Array, ArrayRecord, Message, RecordDict

from strategies.shared import held
from strategies.shared.flower_private import stamp

SHARE = 0.5  # of Ray's store that a round's replies may take
Parts = tuple[str, tuple[int, ...], str, Any]  # of an Array that is bytes


def travelling(messages: list[Message]) -> list[Message]:
    """Return the messages as they travel: what they have in common is in Ray's object store, once."""
    stored: dict[int, Stored] = {}
    copies = []
    for message in messages:
        content = RecordDict(dict(message.content))
        for name, record in list(content.array_records.items()):
            content[name] = stored.setdefault(id(record), Stored(record))
        copy = Message(content=content, metadata=message.metadata)  # type: ignore[call-overload]
        stamp(copy)
        copies.append(copy)
    return copies


def buffered(content: RecordDict) -> RecordDict:
    """Return the content with array records that pickle as buffers."""
    copy = RecordDict(dict(content))
    for name, record in list(content.array_records.items()):
        copy[name] = Buffered(record)
    return copy


def owned(content: RecordDict) -> RecordDict:
    """Return the content with arrays in this process' memory: Ray's store has room for a round's alone."""
    copy = RecordDict(dict(content))
    for name, record in list(content.array_records.items()):
        copy[name] = held.copied(record)
    return copy


class Room:
    """What a round's replies may keep of Ray's store on this machine; the others are copied out of it.

    A full store would go on on the disk.
    """

    def __init__(self) -> None:
        self.left = SHARE * _store(ray.get_runtime_context().get_node_id())

    def kept(self, content: RecordDict) -> RecordDict:
        """Return a reply's content, in the store while there is room."""
        size = sum(map(held.size_of, content.array_records.values()))
        if size > self.left:
            return owned(content)
        self.left -= size
        return content


@cache
def _store(machine: str) -> float:
    """Return how many bytes Ray's store on a machine has room for."""
    (node,) = (node for node in ray.nodes() if node["NodeID"] == machine)  # type: ignore[no-untyped-call]
    return float(node["Resources"].get("object_store_memory", 0))


class Buffered(ArrayRecord):
    """A record whose values are no part of its pickle: Ray copies them straight to where they go.

    The receiver reads tensors where they lie in Ray's store, as nobody may change what is held.

    Parameters
    ----------
    record : what it holds
    """

    def __init__(self, record: ArrayRecord) -> None:
        super().__init__()  # which would make bytes of what is held
        for name, array in record.items():
            self[name] = array

    def __reduce__(self) -> tuple[Callable[..., ArrayRecord], tuple[Any]]:
        """Return how the receiver gets a plain record."""
        return _plain, ([(name, _parts(array)) for name, array in self.items()],)


def _parts(array: Array) -> np.ndarray | Parts:
    values = held.sent(array)
    if values is not None:
        return values
    return array.dtype, tuple(array.shape), array.stype, PickleBuffer(array.data)


def _plain(arrays: Iterable[tuple[str, np.ndarray | Parts]]) -> ArrayRecord:
    record = ArrayRecord()
    for name, parts in arrays:
        if isinstance(parts, np.ndarray):
            record[name] = held.received(parts)
        else:
            record[name] = Array(*parts[:3], bytes(parts[3]))
    return record


class Stored(Buffered):
    """A record that is pickled as a reference to Ray's object store, and put there once."""

    def __init__(self, record: ArrayRecord) -> None:
        super().__init__(record)
        self._reference: Any = None

    def __reduce__(self) -> tuple[Callable[..., ArrayRecord], tuple[Any]]:
        """Return how a worker gets the record."""
        if self._reference is None:
            self._reference = ray.put(Buffered(self))
        return _fetched, (self._reference,)


def _fetched(reference: Any) -> ArrayRecord:
    return _received(reference).copy()


@lru_cache(maxsize=3)  # a round's model, SCAFFOLD's control variate, and a model to evaluate
def _received(reference: Any) -> ArrayRecord:
    record: ArrayRecord = ray.get(reference)
    return record
