"""What a hostile node does to the envelopes of a round's replies: whose they are, and what they answer."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict


@dataclass(frozen=True)
class Sender:
    """A hostile node.

    Parameters
    ----------
    own : its id
    another : that of a sound node
    code : decides what the attacks leave open
    kept : its replies of the round before
    """

    own: int
    another: int
    code: int
    kept: list[Message] = field(default_factory=list)

    def sent(self, replies: list[Message]) -> list[Message]:
        """Return its own replies."""
        return [reply for reply in replies if reply.metadata.src_node_id == self.own]

    def others(self, replies: list[Message]) -> list[Message]:
        """Return the others' replies."""
        return [reply for reply in replies if reply.metadata.src_node_id != self.own]


def failed(sender: Sender, replies: list[Message]) -> list[Message]:
    """An error, of many lines, in the place of its reply."""
    return [
        *(_error(reply, sender.code, "a\n\nb" * 100) for reply in sender.sent(replies)),
        *sender.others(replies),
    ]


def anothers_name(sender: Sender, replies: list[Message]) -> list[Message]:
    """Its reply comes from another node, it says, or from the server."""
    name = (sender.another, 1, 0, -1)[sender.code % 4]
    others = sender.others(replies)
    return [*(_claiming(reply, src_node_id=name) for reply in sender.sent(replies)), *others]


def anothers_message(sender: Sender, replies: list[Message]) -> list[Message]:
    """Its reply answers what another node was asked, or nothing that anybody was."""
    ids = [r.metadata.reply_to_message_id for r in replies if r.metadata.src_node_id == sender.another]
    answered = (ids[0], "", "unknown")[sender.code % 3]
    return [
        *(_claiming(r, reply_to_message_id=answered) for r in sender.sent(replies)),
        *sender.others(replies),
    ]


def late(sender: Sender, replies: list[Message]) -> list[Message]:
    """Its reply comes in the round after."""
    before, sender.kept[:] = list(sender.kept), sender.sent(replies)
    return [*before, *sender.others(replies)]


def twice(sender: Sender, replies: list[Message]) -> list[Message]:
    """Another model follows its reply."""
    return [*replies, *map(_doubled, sender.sent(replies))]


def denouncing(sender: Sender, replies: list[Message]) -> list[Message]:
    """It fails in another node's place, too."""
    others = [reply for reply in replies if reply.metadata.src_node_id == sender.another]
    return [
        *(_claiming(_error(reply, sender.code, "no"), src_node_id=sender.own) for reply in others),
        *replies,
    ]


Attack = Callable[[Sender, list[Message]], list[Message]]
COUNTS_FOR_NOBODY: tuple[Attack, ...] = (failed, anothers_name, anothers_message, late)
CHANGES_NOTHING: tuple[Attack, ...] = (twice, denouncing)


def _error(reply: Message, code: int, reason: str) -> Message:
    return Message(error=Error(code, reason), metadata=copy.deepcopy(reply.metadata))  # type: ignore[call-overload]


def _claiming(reply: Message, **metadata: object) -> Message:
    reply.metadata.__dict__.update({f"_{name}": value for name, value in metadata.items()})
    return reply


def _doubled(reply: Message) -> Message:
    content = RecordDict({**reply.content})
    model = content.array_records["arrays"]
    content["arrays"] = ArrayRecord({k: Array(np.asarray(a.numpy() * 2)) for k, a in model.items()})
    return Message(content=content, metadata=copy.deepcopy(reply.metadata))  # type: ignore[call-overload]
