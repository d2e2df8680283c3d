"""The grid of the inline runtime: it calls the ClientApp in this process.

What a node keeps in ``context.state`` lives on between rounds, as everywhere in Flower.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from logging import getLogger
from typing import ClassVar

from flwr.app import Context, Message, MessageType, RecordDict, UserConfig
from flwr.clientapp import ClientApp

from strategies.shared import protocol
from strategies.shared.flower_private import SUPERLINK_NODE_ID, Run, become_server, failed, stamp

from .suite_grid import SuiteGrid

logger = getLogger("flwr.inline")
Together = Callable[[Sequence[Message], Sequence[Context]], list[Message]]


class InlineGrid(SuiteGrid):
    """A grid of ``num_nodes`` nodes that live in this process.

    Node k holds partition k; its context is made when it is first addressed, so that the population
    costs nothing.

    Parameters
    ----------
    app : answers one message
    num_nodes : the population
    together : answers the training messages of many nodes at once; when it raises, it is not called again
    """

    gives_node_states: ClassVar[bool] = True

    def __init__(self, app: ClientApp, num_nodes: int, together: Together | None = None) -> None:
        become_server()
        self.app = app
        self.num_nodes = num_nodes
        self.together = together
        self._contexts: dict[int, Context] = {}
        self._replies: dict[str, Message] = {}
        self._run = Run.create_empty(run_id=1)

    def get_node_ids(self) -> list[int]:
        """Return the node ids: partition ids, shifted past the server's own."""
        return [SUPERLINK_NODE_ID + 1 + partition_id for partition_id in range(self.num_nodes)]

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

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Answer each message and keep the replies for :meth:`pull_messages`."""
        ids = []
        for message in messages:
            reply = self._answer(message)
            ids.append(reply.metadata.reply_to_message_id)
            self._replies[ids[-1]] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the kept replies to ``message_ids``, each once."""
        return [self._replies.pop(key) for key in message_ids if key in self._replies]

    def node_states(self) -> dict[int, RecordDict]:
        """Return what each node addressed so far keeps in its context, by partition id."""
        return {
            int(context.node_config[protocol.PARTITION_ID]): context.state
            for context in self._contexts.values()
        }

    def load_node_states(self, states: dict[int, RecordDict]) -> None:
        """Give each node what it kept."""
        node_ids = self.get_node_ids()
        for partition_id, state in states.items():
            self._context(node_ids[partition_id]).state = _fresh(state)

    def _answer(self, message: Message) -> Message:
        """Let the addressed node handle a copy of the message, as if it had travelled."""
        node_id = message.metadata.dst_node_id
        context = self._context(node_id)
        request = _delivered(message)
        before = _fresh(context.state)
        try:
            return _delivered(self.app(request, context))
        except (Exception, SystemExit) as error:  # a client's exit is not the run's
            context.state = before  # a node that raises has not changed
            logger.debug("node %d raised", node_id, exc_info=True)
            reason = f"{type(error).__name__}: {error}"
            return _delivered(failed(request, reason))

    def _answer_together(self, messages: list[Message], timeout: float | None) -> list[Message]:
        """Let all addressed nodes train batched; if late, all of them are."""
        assert self.together is not None
        contexts = [self._context(message.metadata.dst_node_id) for message in messages]
        before = [_fresh(context.state) for context in contexts]
        started = time.monotonic()
        try:
            replies = self.together([_delivered(message) for message in messages], contexts)
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

    def _context(self, node_id: int) -> Context:
        if node_id not in self._contexts:
            partition_id = node_id - SUPERLINK_NODE_ID - 1
            config: UserConfig = {protocol.PARTITION_ID: partition_id, "num-partitions": self.num_nodes}
            self._contexts[node_id] = Context(1, node_id, config, RecordDict(), {})
        return self._contexts[node_id]

    def set_run(self, run: Run) -> None:
        """Take the run's description."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run's description."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Make a message to one node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)


class _GivenUp(Exception):
    """The nodes could not be batched."""


def _fresh(content: RecordDict) -> RecordDict:
    """Copy the containers, not the arrays: sender and receiver must not see each other's changes."""
    copied = content.copy()
    for name, record in content.items():
        copied[name] = record.copy()
    return copied


def _delivered(message: Message) -> Message:
    """Return the message as its receiver gets it."""
    if message.has_content():
        message = Message(content=_fresh(message.content), metadata=message.metadata)  # type: ignore[call-overload]
    stamp(message)
    return message
