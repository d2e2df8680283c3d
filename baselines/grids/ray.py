"""The grid of the Ray runtime: send messages to free workers."""

import math
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pickle import PickleBuffer
from typing import Any

import numpy as np
import ray
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from strategies.shared import client_state, protocol
from strategies.shared.arrays import SharedMean, copy_record, receive_values, record_size, sendable_values
from strategies.shared.flower_private import assign_message_id, make_failed_reply

from .inline import NodePool, answer, deliver
from .ray_pool import Dispatch, Workers, WorkerTask

# How records travel on Ray: arrays without pickling, and those that messages share only once.


STORE_SHARE = 0.5  # of Ray's store that a round's replies may take
Parts = tuple[str, tuple[int, ...], str, Any]  # of an Array: dtype, shape, stype, buffer


def pack_messages(messages: list[Message]) -> list[Message]:
    """Return copies of the messages whose shared records are put into Ray's object store once."""
    stored: dict[int, StoredRecord] = {}
    copies = []
    for message in messages:
        content = RecordDict(dict(message.content))
        for name, record in list(content.array_records.items()):
            content[name] = stored.setdefault(id(record), StoredRecord(record))
        copy = Message(content=content, metadata=message.metadata)  # type: ignore[call-overload]
        assign_message_id(copy)
        copies.append(copy)
    return copies


def buffer_content(content: RecordDict) -> RecordDict:
    """Return the content with array records that pickle as buffers."""
    copy = RecordDict(dict(content))
    for name, record in list(content.array_records.items()):
        copy[name] = BufferedRecord(record)
    return copy


def copy_owned(content: RecordDict) -> RecordDict:
    """Copy the content's arrays into this process' memory: Ray's store has room for one round only."""
    copy = RecordDict(dict(content))
    for name, record in list(content.array_records.items()):
        copy[name] = copy_record(record)
    return copy


class StoreBudget:
    """How much of this machine's Ray store a round's replies may keep; further ones are copied out.

    A full store would spill to disk.
    """

    def __init__(self) -> None:
        self.left = STORE_SHARE * _store(ray.get_runtime_context().get_node_id())

    def keep(self, content: RecordDict) -> RecordDict:
        """Return a reply's content, left in the store while there is room."""
        size = sum(map(record_size, content.array_records.values()))
        if size > self.left:
            return copy_owned(content)
        self.left -= size
        return content


@cache
def _store(machine: str) -> float:
    """Return how many bytes Ray's store on a machine has room for."""
    (node,) = (node for node in ray.nodes() if node["NodeID"] == machine)  # type: ignore[no-untyped-call]
    return float(node["Resources"].get("object_store_memory", 0))


class BufferedRecord(ArrayRecord):
    """A record whose values are pickled out of band: Ray copies them directly to the receiver.

    The receiver's tensors lie in Ray's store, which is read-only.

    Parameters
    ----------
    record : the record to wrap
    """

    def __init__(self, record: ArrayRecord) -> None:
        super().__init__()  # without the record, which would be serialised
        for name, array in record.items():
            self[name] = array

    def __reduce__(self) -> tuple[Callable[..., ArrayRecord], tuple[Any]]:
        """Unpickle to a plain record."""
        return _to_plain, ([(name, _parts(array)) for name, array in self.items()],)


def _parts(array: Array) -> np.ndarray | Parts:
    values = sendable_values(array)
    if values is not None:
        return values
    return array.dtype, tuple(array.shape), array.stype, PickleBuffer(array.data)


def _to_plain(arrays: Iterable[tuple[str, np.ndarray | Parts]]) -> ArrayRecord:
    record = ArrayRecord()
    for name, parts in arrays:
        if isinstance(parts, np.ndarray):
            record[name] = receive_values(parts)
        else:
            record[name] = Array(*parts[:3], bytes(parts[3]))
    return record


class StoredRecord(BufferedRecord):
    """A record that is pickled as a reference to Ray's object store, and put there once."""

    def __init__(self, record: ArrayRecord) -> None:
        super().__init__(record)
        self._reference: Any = None

    def __reduce__(self) -> tuple[Callable[..., ArrayRecord], tuple[Any]]:
        """Unpickle by fetching the record from the store."""
        if self._reference is None:
            self._reference = ray.put(BufferedRecord(self))
        return _fetch, (self._reference,)


def _fetch(reference: Any) -> ArrayRecord:
    return _receive(reference).copy()


@lru_cache(maxsize=3)  # a round's model, SCAFFOLD's control variate, and a model to evaluate
def _receive(reference: Any) -> ArrayRecord:
    record: ArrayRecord = ray.get(reference)
    return record


# MessageBatch: messages to nodes, as a Ray worker's task.


Answer = tuple[Message, RecordDict]  # a reply, and the node's state after it


@dataclass
class Round:
    """What the message batches of a round have in common.

    Parameters
    ----------
    nodes : their contexts travel with the messages, and their states come back
    folded : whether workers return the weighted mean of their nodes' models instead of each model
    replies : those received so far
    room : how much of Ray's store they may keep
    """

    nodes: NodePool
    folded: bool = False
    replies: list[Message] = field(default_factory=list)
    room: StoreBudget = field(default_factory=StoreBudget)

    def context(self, message: Message) -> Context:
        """Return the context of the node that a message is for."""
        return self.nodes.context(message.metadata.dst_node_id)


class MessageBatch(WorkerTask):
    """Messages to nodes, answered by one worker.

    Parameters
    ----------
    messages : as :func:`pack_messages` returns them
    round : the round that they belong to
    patience : seconds after which several messages are answered one by one
    """

    def __init__(self, messages: Sequence[Message], round: Round, patience: float = math.inf) -> None:
        super().__init__()
        self.messages, self.round = messages, round
        self.patience = patience if len(messages) > 1 else math.inf

    def send(self, actor: Any) -> Any:
        """Have the worker answer the messages."""
        contexts = [copy(self.round.context(message)) for message in self.messages]
        for message, context in zip(self.messages, contexts, strict=True):
            context.state = buffer_content(client_state.select(context.state, message.metadata.group_id))
        method = "answer_folded" if self.round.folded else "answer"
        return actor.do.remote(method, self.messages, contexts)

    def take(self, outcome: Any) -> None:
        """Keep the replies and each node's new state."""
        answers = unfold_replies(*outcome) if self.round.folded else outcome
        for message, (reply, state) in zip(self.messages, answers, strict=True):
            context, group = self.round.context(message), message.metadata.group_id
            context.state = client_state.merge(context.state, copy_owned(state), group)
            if reply.has_content() and not self.round.folded:
                reply.content = self.round.room.keep(reply.content)
            assign_message_id(reply)
            self.round.replies.append(reply)

    def raised(self, error: Exception) -> None:
        """Reply with the error for each node; for example, the replies could not be pickled."""
        self._answer_all(str(error))

    def lost(self, reason: str) -> None:
        """Count the nodes as lost, and answer with the reason."""
        self.round.nodes.lost += len(self.messages)
        self._answer_all(reason)

    def parts(self) -> Sequence[WorkerTask]:
        """Split into single messages, so that a failing node does not affect the others."""
        if len(self.messages) == 1:
            return [self]
        parts = [MessageBatch([message], self.round) for message in self.messages]
        for part in parts:
            part.deaths, part.alone = self.deaths, self.alone
        return parts

    def _answer_all(self, reason: str) -> None:
        self.round.replies += [deliver(make_failed_reply(message, reason)) for message in self.messages]


def unfold_replies(
    answers: list[Answer], folded: list[int], mean: ArrayRecord | None, sums: dict[str, np.ndarray]
) -> list[Answer]:
    """Put the mean into the replies whose models it replaces; ``folded`` are their positions."""
    if mean is not None:
        shared = SharedMean(mean, {name: torch.tensor(values) for name, values in sums.items()})
        for k in folded:
            answers[k][0].content[protocol.ARRAYS] = shared
    return answers


TARGET_TASK_SECONDS = 0.05  # target duration in seconds of a task of several messages
MAX_TASK_SECONDS = 2.0  # seconds after which they are answered one by one
MIN_RETRY_TIMEOUT = 60.0  # seconds: a shorter timeout leaves no time for a second try


class RayGrid(NodePool):
    """A grid of ``num_nodes`` nodes whose messages are answered by Ray workers.

    A node's context goes with its message and comes back with the reply. A message whose worker died
    goes to another one with the same context, and so gives the same reply bit for bit.

    Parameters
    ----------
    app : answers queries (which partition a node holds) in this process
    num_nodes : the population
    workers : answer all other messages
    retries : how often a message whose worker died is sent again before its node counts as lost
    batched : whether each worker gets its share of a round's nodes at once, to train them batched
    folded : whether each worker gets its share at once, and returns the weighted mean of their models
    """

    def __init__(
        self,
        app: ClientApp,
        num_nodes: int,
        workers: Workers,
        retries: int = 2,
        *,
        batched: bool = False,
        folded: bool = False,
    ) -> None:
        super().__init__(num_nodes)
        self.app, self.workers, self.batched, self.folded = app, workers, batched, folded
        self.dispatch: Dispatch = Dispatch(workers, retries)
        self.lost = 0
        self._seconds: dict[str, float] = {}  # per message, in the round's slowest task, by message type

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Return the replies that came within ``timeout`` s, in no particular order.

        The time begins when there is a worker. A worker still busy afterwards is replaced, as it may hang.
        """
        messages = list(messages)
        kind = messages[0].metadata.message_type if messages else MessageType.TRAIN
        if kind == MessageType.QUERY:
            return [self._answer_here(message) for message in messages]
        current = Round(self, folded=self.folded and kind == MessageType.TRAIN)
        self.workers.grow(len(messages))
        hurried = timeout is not None and timeout < MIN_RETRY_TIMEOUT
        shares = self._shares(kind, pack_messages(messages), current, one_by_one=hurried)
        self.dispatch.finish(self.dispatch.add(shares), timeout)
        self._seconds[kind] = max((one.seconds / len(one.messages) for one in shares), default=math.inf)
        return current.replies

    def _shares(
        self, kind: str, messages: list[Message], current: Round, *, one_by_one: bool
    ) -> list[MessageBatch]:
        """Divide the messages into tasks.

        Batched or folded: one task per worker. Otherwise one per message, or per several short ones (by
        their time in the last round), since each task has a fixed cost.
        """
        if current.folded or (self.batched and kind == MessageType.TRAIN):
            count, patience = len(self.workers), math.inf
        else:
            several = (
                1 if one_by_one else max(1, int(TARGET_TASK_SECONDS / self._seconds.get(kind, math.inf)))
            )
            count, patience = max(len(self.workers), math.ceil(len(messages) / several)), MAX_TASK_SECONDS
        count = min(count, len(messages))
        return [MessageBatch(messages[k::count], current, patience) for k in range(count)]

    def used(self) -> list[dict[str, Any]]:
        """Return the steps and memory that each worker reports."""
        return self.workers.used()

    def _answer_here(self, message: Message) -> Message:
        context = self.context(message.metadata.dst_node_id)
        return deliver(answer(self.app, deliver(message), context))
