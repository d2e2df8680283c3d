"""The grid of Flower's simulation on Ray: a round's model goes to each worker once."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from threading import Event
from typing import Any

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from .polling import PollingGrid


class RayGrid(PollingGrid):
    """The simulation's grid, on which a round's model goes to each worker once, not with every message.

    Parameters
    ----------
    grid : the simulation's
    interrupted : once it is set, nobody waits for replies any more: the ServerApp ends
    """

    def __init__(self, grid: Grid, interrupted: Event) -> None:
        super().__init__(grid)
        self._interrupted = interrupted

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there."""
        if self._interrupted.is_set():
            raise SystemExit("interrupted")
        return super().pull_messages(message_ids)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send the messages; return their ids."""
        messages = list(messages)
        stored: dict[int, Stored] = {}
        for content in (message.content for message in messages):
            for name, record in list(content.array_records.items()):
                if not isinstance(record, Stored):  # messages of a round have their content in common
                    content[name] = stored.setdefault(id(record), Stored(record))
        return super().push_messages(messages)


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
        import ray

        if self._reference is None:
            self._reference = ray.put(ArrayRecord(dict(self)))
        return _fetched, (self._reference,)


def _fetched(reference: Any) -> ArrayRecord:
    return ArrayRecord(dict(_received(reference)))


@lru_cache(maxsize=2)  # a round's model, and SCAFFOLD's control variate
def _received(reference: Any) -> ArrayRecord:
    import ray

    record: ArrayRecord = ray.get(reference)
    return record
