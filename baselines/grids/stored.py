"""How records travel on Ray: arrays straight to where they go, and what messages have in common once."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from pickle import PickleBuffer
from typing import Any

import ray
from flwr.app import Array, ArrayRecord, Message, RecordDict

from strategies.shared.flower_private import stamp


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
        copy[name] = Buffered(dict(record))
    return copy


class Buffered(ArrayRecord):
    """A record whose bytes are no part of its pickle: Ray copies them straight to where they go."""

    def __reduce__(self) -> tuple[Callable[..., ArrayRecord], tuple[Any]]:
        """Return how the receiver gets a plain record."""
        return _plain, ([(n, a.dtype, a.shape, a.stype, PickleBuffer(a.data)) for n, a in self.items()],)


def _plain(arrays: Iterable[tuple[str, str, tuple[int, ...], str, Any]]) -> ArrayRecord:
    rebuilt = {name: Array(dtype, shape, kind, bytes(data)) for name, dtype, shape, kind, data in arrays}
    return ArrayRecord(rebuilt)


class Stored(ArrayRecord):
    """A record that is pickled as a reference to Ray's object store, and put there once.

    Parameters
    ----------
    record : what it holds
    """

    def __init__(self, record: ArrayRecord) -> None:
        super().__init__(dict(record))
        self._reference: Any = None

    def __reduce__(self) -> tuple[Callable[..., ArrayRecord], tuple[Any]]:
        """Return how a worker gets the record."""
        if self._reference is None:
            self._reference = ray.put(Buffered(dict(self)))
        return _fetched, (self._reference,)


def _fetched(reference: Any) -> ArrayRecord:
    return ArrayRecord(dict(_received(reference)))


@lru_cache(maxsize=3)  # a round's model, SCAFFOLD's control variate, and a model to evaluate
def _received(reference: Any) -> ArrayRecord:
    record: ArrayRecord = ray.get(reference)
    return record
