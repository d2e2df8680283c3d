"""Answering: how a process that has nodes' contexts at hand lets them handle messages."""

from collections.abc import Callable, Sequence
from logging import getLogger
from traceback import format_exception

from flwr.app import Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from baselines.errors import UserError
from strategies.shared.flower_private import failed, stamp

logger = getLogger("flwr.grids")
Together = Callable[[Sequence[Message], Sequence[Context]], list[Message]]


class Answering:
    """Answers messages: one after another, or the training of many nodes at once.

    Parameters
    ----------
    app : answers one message
    together : answers the training messages of many nodes; when it raises, it is not called again
    """

    def __init__(self, app: ClientApp, together: Together | None = None) -> None:
        self.app, self.together = app, together

    def __call__(self, requests: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
        """Return the reply to each message, in order; contexts' states are as they are after it."""
        replies = self.at_once(requests, contexts)
        if replies is None:
            pairs = zip(requests, contexts, strict=True)
            replies = [answer(self.app, request, context) for request, context in pairs]
        return replies

    def at_once(self, requests: Sequence[Message], contexts: Sequence[Context]) -> list[Message] | None:
        """Return the replies of nodes that train batched; None where they cannot, and nothing changed."""
        if self.together is None or len(requests) < 2:
            return None
        if requests[0].metadata.message_type != MessageType.TRAIN:
            return None
        before = [fresh(context.state) for context in contexts]
        try:
            return self.together(requests, contexts)
        except Exception as error:
            for context, state in zip(contexts, before, strict=True):
                context.state = state
            logger.warning("nodes are not batched, they train one after another: %s", error)
            self.together = None
            return None


def answer(app: ClientApp, request: Message, context: Context) -> Message:
    """Let a node handle a message; one that raises answers with the error and has not changed."""
    before = fresh(context.state)
    try:
        return app(request, context)
    except (Exception, SystemExit) as error:  # a client's exit is not the run's
        context.state = before
        logger.debug("node %d raised", context.node_id, exc_info=True)
        said = f"{type(error).__name__}: {error}"
        trace = [] if isinstance(error, UserError) else ["\n", *format_exception(error)]
        return failed(request, "".join([said, *trace]))


def fresh(content: RecordDict) -> RecordDict:
    """Copy the containers, not the arrays: sender and receiver must not see each other's changes."""
    copied = content.copy()
    for name, record in content.items():
        copied[name] = record.copy()
    return copied


def delivered(message: Message) -> Message:
    """Return the message as its receiver gets it."""
    if message.has_content():
        message = Message(content=fresh(message.content), metadata=message.metadata)  # type: ignore[call-overload]
    stamp(message)
    return message
