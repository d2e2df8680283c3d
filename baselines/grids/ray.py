"""The grid of the Ray runtime: messages go to whichever worker is free, wherever it runs."""

import math
from collections.abc import Iterable
from typing import Any

from flwr.app import Message, MessageType
from flwr.clientapp import ClientApp

from .answering import answer, delivered
from .dispatch import Dispatch
from .population import Population
from .shares import Round, Share
from .stored import travelling
from .workers import Workers

SHORT = 0.05  # seconds that a task of several messages is to take
LONG = 2.0  # seconds after which they are answered one by one
HURRY = 60.0  # seconds: with less for a round there is no time for a second try


class RayGrid(Population):
    """A grid of ``num_nodes`` nodes whose messages are answered by Ray workers.

    A node's context goes with its message and comes back with the reply. A message whose worker died
    goes to another one, with the same context, and so gives the same answer to the bit.

    Parameters
    ----------
    app : answers, in this process, what the nodes' configuration alone decides: which partition they hold
    num_nodes : the population
    workers : who answer the rest
    retries : how often a message whose worker died is sent again before its node is given up for the round
    batched : whether a worker is sent its share of a round's nodes at once, to train them batched
    folded : whether it is sent its share to return the weighted mean of their models, and no other
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
        self._seconds: dict[str, float] = {}  # that a message of a kind took, the slowest of a round

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Return the replies that came within ``timeout`` s, in no particular order.

        The time begins when there is a worker. One that is still busy at its end is replaced: it may never
        end.
        """
        messages = list(messages)
        kind = messages[0].metadata.message_type if messages else MessageType.TRAIN
        if kind == MessageType.QUERY:
            return [self._answer_here(message) for message in messages]
        this = Round(self, folded=self.folded and kind == MessageType.TRAIN)
        self.workers.grow(len(messages))
        hurried = timeout is not None and timeout < HURRY
        shares = self._shares(kind, travelling(messages), this, one_by_one=hurried)
        self.dispatch.finish(self.dispatch.add(shares), timeout)
        self._seconds[kind] = max((one.seconds / len(one.messages) for one in shares), default=math.inf)
        return this.replies

    def _shares(self, kind: str, messages: list[Message], this: Round, *, one_by_one: bool) -> list[Share]:
        """Return the tasks that answer the messages.

        Nodes that train batched, or whose models are folded: one for each worker. Others: one for each
        message, or for as many as last time took a short time together, since a task has costs of its own.
        """
        if this.folded or (self.batched and kind == MessageType.TRAIN):
            count, patience = len(self.workers), math.inf
        else:
            several = 1 if one_by_one else max(1, int(SHORT / self._seconds.get(kind, math.inf)))
            count, patience = max(len(self.workers), math.ceil(len(messages) / several)), LONG
        count = min(count, len(messages))
        return [Share(messages[k::count], this, patience) for k in range(count)]

    def used(self) -> list[dict[str, Any]]:
        """Return what each worker says of its steps and its memory."""
        return self.workers.used()

    def _answer_here(self, message: Message) -> Message:
        context = self.context(message.metadata.dst_node_id)
        return delivered(answer(self.app, delivered(message), context))
