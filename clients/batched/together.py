"""Batched nodes: trained in one program, with the results of one after another, to rounding.

On a small model the calls of a training step cost more than its arithmetic. Here the parameters of many
nodes lie in one stack [nodes, ...] (:mod:`clients.batched.stack`); one call takes the step of all of them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from flwr.app import Context, Message

from clients.turn import Node, Turn, training_of

from .batchable import NotTogether, check
from .room import Room
from .stack import Stack

__all__ = ["NotTogether", "Stack", "Together"]


class Together:
    """Answers training messages for many nodes at once.

    Parameters
    ----------
    node_of : builds the node that a message is for; all nodes have one model, task and training

    Raises
    ------
    NotTogether : when called, for a model or a training that cannot be batched
    """

    def __init__(self, node_of: Callable[[Message, Context], Node]) -> None:
        self.node_of = node_of
        self._stack: Stack | None = None
        self._room = Room()

    def __call__(self, messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
        """Return the reply to each message, in order."""
        pairs = zip(messages, contexts, strict=True)
        nodes = [self.node_of(message, context) for message, context in pairs]
        check(nodes)
        places = self._room.places(nodes)
        if self._stack is None or len(self._stack.places) < places or not self._stack.serves(nodes[0]):
            self._stack = Stack(nodes[0], places)
        replies: dict[int, Message] = {}
        triples = zip(nodes, messages, contexts, strict=True)
        steps = [training_of(node, m, context).steps(len(node.train)) for node, m, context in triples]
        by_steps = sorted(range(len(nodes)), key=lambda k: -steps[k])
        for start in range(0, len(nodes), places):
            chosen = by_steps[start : start + places]
            seats = zip(chosen, self._stack.places, strict=False)
            turns = [Turn(replace(nodes[k], model=m), messages[k], contexts[k]) for k, m in seats]
            started = time.perf_counter()
            results = self._stack.train(turns)
            seconds = (time.perf_counter() - started) / len(turns)
            for k, turn, metrics in zip(chosen, turns, results, strict=True):
                replies[k] = turn.reply(metrics, seconds)
        return [replies[k] for k in range(len(nodes))]
