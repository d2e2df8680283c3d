"""The grid of the Ray runtime: messages go to whichever worker is free, wherever it runs."""

import math
from collections.abc import Iterable

from flwr.app import Message, MessageType
from flwr.clientapp import ClientApp

from .answering import answer, delivered
from .dispatch import Dispatch
from .population import Population
from .shares import Share
from .stored import travelling
from .workers import Workers

SHORT = 0.05  # seconds that a task of several messages may take


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
    """

    def __init__(
        self, app: ClientApp, num_nodes: int, workers: Workers, retries: int = 2, *, batched: bool = False
    ) -> None:
        super().__init__(num_nodes)
        self.app, self.workers, self.batched = app, workers, batched
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
        replies: list[Message] = []
        self.workers.grow(len(messages))
        dealt, count = travelling(messages), self._shares(kind, len(messages))
        shares = [Share(dealt[k::count], self, replies) for k in range(count)]
        self.dispatch.finish(self.dispatch.add(shares), timeout)
        self._seconds[kind] = max((one.seconds / len(one.messages) for one in shares), default=math.inf)
        return replies

    def _shares(self, kind: str, messages: int) -> int:
        """Return into how many tasks to divide so many messages.

        Nodes that train batched: one for each worker. Others: a message each, or as many as last time took
        a short time together, since a task has costs of its own. One that is late makes its task late.
        """
        if self.batched and kind == MessageType.TRAIN:
            return min(len(self.workers), messages)
        several = max(1, int(SHORT / self._seconds.get(kind, math.inf)))
        return min(messages, max(len(self.workers), math.ceil(messages / several)))

    def _answer_here(self, message: Message) -> Message:
        context = self.context(message.metadata.dst_node_id)
        return delivered(answer(self.app, delivered(message), context))
