"""The grid of the inline runtime: it calls the ClientApp in this process."""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from logging import getLogger

from flwr.app import Context, Message, MessageType
from flwr.clientapp import ClientApp

from strategies.shared.flower_private import stamp

from .population import Population, answer, delivered, fresh

logger = getLogger("flwr.inline")
Together = Callable[[Sequence[Message], Sequence[Context]], list[Message]]


class InlineGrid(Population):
    """A grid of ``num_nodes`` nodes that live in this process.

    Parameters
    ----------
    app : answers one message
    num_nodes : the population
    together : answers the training messages of many nodes at once; when it raises, it is not called again
    """

    def __init__(self, app: ClientApp, num_nodes: int, together: Together | None = None) -> None:
        super().__init__(num_nodes)
        self.app = app
        self.together = together

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Answer each message in turn; one that takes longer than ``timeout`` s is not answered."""
        messages, replies = list(messages), []
        if self.together and len(messages) > 1 and messages[0].metadata.message_type == MessageType.TRAIN:
            with contextlib.suppress(_GivenUp):
                return self._answer_together(messages, timeout)
        for message in messages:
            started = time.monotonic()
            reply = self._answer(message)
            if timeout is None or time.monotonic() - started <= timeout:
                replies.append(reply)
        return replies

    def _answer(self, message: Message) -> Message:
        """Let the addressed node handle a copy of the message, as if it had travelled."""
        context = self.context(message.metadata.dst_node_id)
        return delivered(answer(self.app, delivered(message), context))

    def _answer_together(self, messages: list[Message], timeout: float | None) -> list[Message]:
        """Let all addressed nodes train batched; if late, all of them are."""
        assert self.together is not None
        contexts = [self.context(message.metadata.dst_node_id) for message in messages]
        before = [fresh(context.state) for context in contexts]
        started = time.monotonic()
        try:
            replies = self.together([delivered(message) for message in messages], contexts)
        except Exception as error:
            for context, state in zip(contexts, before, strict=True):
                context.state = state
            logger.warning("nodes are not batched, they train one after another: %s", error)
            self.together = None
            raise _GivenUp from error
        in_time = timeout is None or time.monotonic() - started <= timeout
        for reply in replies:
            stamp(reply)
        return replies if in_time else []


class _GivenUp(Exception):
    """The nodes could not be batched."""
