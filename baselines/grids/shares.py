"""Share: messages to nodes, as a Ray worker's task."""

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

from flwr.app import Context, Message

from strategies.shared.flower_private import failed, stamp

from .answering import delivered
from .population import Population
from .stored import buffered
from .tasks import Task


class Share(Task):
    """Messages to nodes, for one worker to answer.

    Parameters
    ----------
    messages : as they travel
    nodes : whose contexts travel with the messages; their states come back
    replies : where the replies go
    patience : seconds after which several messages are answered one by one
    """

    def __init__(
        self,
        messages: Sequence[Message],
        nodes: Population,
        replies: list[Message],
        patience: float = math.inf,
    ) -> None:
        super().__init__()
        self.messages, self.nodes, self.replies = messages, nodes, replies
        self.patience = patience if len(messages) > 1 else math.inf

    def send(self, actor: Any) -> Any:
        """Have the worker answer the messages."""
        contexts = [copy(self._context(message)) for message in self.messages]
        for context in contexts:
            context.state = buffered(context.state)
        return actor.answer.remote(self.messages, contexts)

    def take(self, outcome: Any) -> None:
        """Keep the replies, and what each node remembers."""
        for message, (reply, state) in zip(self.messages, outcome, strict=True):
            self._context(message).state = state
            stamp(reply)
            self.replies.append(reply)

    def raised(self, error: Exception) -> None:
        """Answer with the error, for each node: the replies could not travel, say."""
        self.replies += [delivered(failed(message, str(error))) for message in self.messages]

    def lost(self, reason: str) -> None:
        """Count the nodes as lost, and answer with the reason."""
        self.nodes.lost += len(self.messages)
        self.replies += [delivered(failed(message, reason)) for message in self.messages]

    def parts(self) -> Sequence[Task]:
        """Return the messages one by one: no other node is to suffer from the one that went wrong."""
        if len(self.messages) == 1:
            return [self]
        parts = [Share([message], self.nodes, self.replies) for message in self.messages]
        for part in parts:
            part.deaths, part.alone = self.deaths, self.alone
        return parts

    def _context(self, message: Message) -> Context:
        return self.nodes.context(message.metadata.dst_node_id)
