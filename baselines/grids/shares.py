"""Share: messages to nodes, as a Ray worker's task."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, Context, Message, RecordDict

from strategies.shared import memory, protocol
from strategies.shared.flower_private import failed, stamp
from strategies.shared.shared_mean import SharedMean

from .answering import delivered
from .population import Population
from .stored import Room, buffered, owned
from .tasks import Task

Answer = tuple[Message, RecordDict]  # a reply, and the node's state after it


@dataclass
class Round:
    """What the shares of a round have in common.

    Parameters
    ----------
    nodes : whose contexts travel with the messages; their states come back
    folded : whether workers return the weighted mean of their nodes' models, and not each one's
    replies : those that have come
    room : how much of Ray's store they may keep
    """

    nodes: Population
    folded: bool = False
    replies: list[Message] = field(default_factory=list)
    room: Room = field(default_factory=Room)

    def context(self, message: Message) -> Context:
        """Return the context of the node that a message is for."""
        return self.nodes.context(message.metadata.dst_node_id)


class Share(Task):
    """Messages to nodes, for one worker to answer.

    Parameters
    ----------
    messages : as they travel
    round : that they are of
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
            context.state = buffered(memory.part(context.state, message.metadata.group_id))
        method = "answer_folded" if self.round.folded else "answer"
        return actor.do.remote(method, self.messages, contexts)

    def take(self, outcome: Any) -> None:
        """Keep the replies, and what each node remembers."""
        answers = unfolded(*outcome) if self.round.folded else outcome
        for message, (reply, state) in zip(self.messages, answers, strict=True):
            context, group = self.round.context(message), message.metadata.group_id
            context.state = memory.renewed(context.state, owned(state), group)
            if reply.has_content() and not self.round.folded:
                reply.content = self.round.room.kept(reply.content)
            stamp(reply)
            self.round.replies.append(reply)

    def raised(self, error: Exception) -> None:
        """Answer with the error, for each node: the replies could not travel, say."""
        self._answer_all(str(error))

    def lost(self, reason: str) -> None:
        """Count the nodes as lost, and answer with the reason."""
        self.round.nodes.lost += len(self.messages)
        self._answer_all(reason)

    def parts(self) -> Sequence[Task]:
        """Return the messages one by one: no other node is to suffer from the one that went wrong."""
        if len(self.messages) == 1:
            return [self]
        parts = [Share([message], self.round) for message in self.messages]
        for part in parts:
            part.deaths, part.alone = self.deaths, self.alone
        return parts

    def _answer_all(self, reason: str) -> None:
        self.round.replies += [delivered(failed(message, reason)) for message in self.messages]


def unfolded(answers: list[Answer], folded: list[int], mean: ArrayRecord | None) -> list[Answer]:
    """Let the replies whose models were folded, by their positions, carry the mean in their place."""
    if mean is not None:
        shared = SharedMean(mean)
        for k in folded:
            answers[k][0].content[protocol.ARRAYS] = shared
    return answers
