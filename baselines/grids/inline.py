"""The grid of the inline runtime: it calls the ClientApp in this process."""

import time
from collections.abc import Iterable, Mapping
from typing import ClassVar

from flwr.app import Message
from flwr.clientapp import ClientApp

from .answering import Answering, Together, answer, delivered
from .population import Population


class InlineGrid(Population):
    """A grid of ``num_nodes`` nodes that live in this process.

    Parameters
    ----------
    app : answers one message
    num_nodes : the population
    together : answers the training messages of many nodes at once; when it raises, it is not called again
    sites : {name: path} of data of the nodes' own
    """

    keeps_arrays: ClassVar[bool] = True

    def __init__(
        self,
        app: ClientApp,
        num_nodes: int,
        together: Together | None = None,
        sites: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(num_nodes, sites)
        self.answering = Answering(app, together)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Answer each message in turn; one that takes longer than ``timeout`` s is not answered.

        Nodes that train batched are all late, or none is.
        """
        messages, replies = list(messages), []
        if self.answering.together and (batched := self._answer_at_once(messages, timeout)) is not None:
            return batched
        for message in messages:
            started = time.monotonic()
            reply = self._answer(message)
            if timeout is None or time.monotonic() - started <= timeout:
                replies.append(reply)
        return replies

    def _answer(self, message: Message) -> Message:
        """Let the addressed node handle a copy of the message, as if it had travelled."""
        context = self.context(message.metadata.dst_node_id)
        return delivered(answer(self.answering.app, delivered(message), context))

    def _answer_at_once(self, messages: list[Message], timeout: float | None) -> list[Message] | None:
        contexts = [self.context(message.metadata.dst_node_id) for message in messages]
        started = time.monotonic()
        replies = self.answering.at_once([delivered(message) for message in messages], contexts)
        if replies is None:
            return None
        in_time = timeout is None or time.monotonic() - started <= timeout
        return [delivered(reply) for reply in replies] if in_time else []
