"""The grid of the inline runtime: it calls the ClientApp in this process."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import getLogger
from traceback import format_exception
from typing import ClassVar

from flwr.app import Context, Message, MessageType, RecordDict, UserConfig
from flwr.clientapp import ClientApp

from baselines.errors import UserError
from strategies.shared import protocol
from strategies.shared.flower_private import (
    SUPERLINK_NODE_ID,
    Run,
    assign_message_id,
    become_server,
    make_failed_reply,
)

from .base import SuiteGrid

logger = getLogger("flwr.grids")


# Answering: handling messages in a process that holds the nodes' contexts.


BatchedTrainer = Callable[[Sequence[Message], Sequence[Context]], list[Message]]


class MessageHandler:
    """Answers messages: one after another, or the training of many nodes at once.

    Parameters
    ----------
    app : answers one message
    together : answers the training messages of many nodes; when it raises, it is not called again
    """

    def __init__(self, app: ClientApp, batched_trainer: BatchedTrainer | None = None) -> None:
        self.app, self.batched_trainer = app, batched_trainer

    def __call__(self, requests: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
        """Return the reply to each message, in order; update the contexts' states."""
        replies = self.at_once(requests, contexts)
        if replies is None:
            pairs = zip(requests, contexts, strict=True)
            replies = [answer(self.app, request, context) for request, context in pairs]
        return replies

    def at_once(self, requests: Sequence[Message], contexts: Sequence[Context]) -> list[Message] | None:
        """Train the nodes batched and return their replies; None, with states unchanged, if they cannot be."""
        if self.batched_trainer is None or len(requests) < 2:
            return None
        if requests[0].metadata.message_type != MessageType.TRAIN:
            return None
        before = [copy_content(context.state) for context in contexts]
        try:
            return self.batched_trainer(requests, contexts)
        except Exception as error:
            for context, state in zip(contexts, before, strict=True):
                context.state = state
            logger.warning("nodes are not batched and train one after another: %s", error)
            self.batched_trainer = None
            return None


def answer(app: ClientApp, request: Message, context: Context) -> Message:
    """Let a node handle a message; if it raises, reply with the error and restore its state."""
    before = copy_content(context.state)
    try:
        return app(request, context)
    except (Exception, SystemExit) as error:  # a client that exits must not end the run
        context.state = before
        logger.debug("node %d raised", context.node_id, exc_info=True)
        reason = f"{type(error).__name__}: {error}"
        trace = [] if isinstance(error, UserError) else ["\n", *format_exception(error)]
        return make_failed_reply(request, "".join([reason, *trace]))


def copy_content(content: RecordDict) -> RecordDict:
    """Copy the containers, not the arrays: sender and receiver must not see each other's changes."""
    copied = content.copy()
    for name, record in content.items():
        copied[name] = record.copy()
    return copied


def deliver(message: Message) -> Message:
    """Return the message as its receiver gets it."""
    if message.has_content():
        message = Message(content=copy_content(message.content), metadata=message.metadata)  # type: ignore[call-overload]
    assign_message_id(message)
    return message


# Population: nodes known in advance, whose contexts this process holds.


class NodePool(SuiteGrid):
    """A grid of ``num_nodes`` nodes; node k holds partition k, or is the k-th site.

    A context is created when its node is first addressed, so a large population costs nothing.

    Parameters
    ----------
    num_nodes : the population
    sites : {name: path} of each node's own data; empty where nodes hold partitions
    """

    gives_node_states: ClassVar[bool] = True

    def __init__(self, num_nodes: int, sites: Mapping[str, str] | None = None) -> None:
        become_server()
        self._sites = list((sites or {}).items())
        self.num_nodes = num_nodes
        self._contexts: dict[int, Context] = {}
        self._replies: dict[str, Message] = {}
        self._run = Run.create_empty(run_id=1)

    def get_node_ids(self) -> list[int]:
        """Return the node ids: partition ids, shifted past the server's own."""
        return [SUPERLINK_NODE_ID + 1 + partition_id for partition_id in range(self.num_nodes)]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Have the messages answered, and keep the replies for :meth:`pull_messages`."""
        replies = self.send_and_receive(messages)
        ids = [reply.metadata.reply_to_message_id for reply in replies]
        self._replies |= dict(zip(ids, replies, strict=True))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the kept replies to ``message_ids``, each once."""
        return [self._replies.pop(key) for key in message_ids if key in self._replies]

    def node_states(self) -> dict[int, RecordDict]:
        """Return the state of each node addressed so far, by partition id (or the site's position)."""
        return {_position(node_id): context.state for node_id, context in self._contexts.items()}

    def load_node_states(self, states: dict[int, RecordDict]) -> None:
        """Restore each node's state."""
        node_ids = self.get_node_ids()
        for partition_id, state in states.items():
            self.context(node_ids[partition_id]).state = copy_content(state)

    def context(self, node_id: int) -> Context:
        """Return a node's context, whose state persists between rounds, as everywhere in Flower."""
        if node_id not in self._contexts:
            k = _position(node_id)
            config: UserConfig = {protocol.PARTITION_ID: k, "num-partitions": self.num_nodes}
            if self._sites:
                config = dict(zip((protocol.SITE, protocol.DATA), self._sites[k], strict=True))
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


def _position(node_id: int) -> int:
    return node_id - SUPERLINK_NODE_ID - 1


class InlineGrid(NodePool):
    """A grid of ``num_nodes`` nodes in this process.

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
        batched_trainer: BatchedTrainer | None = None,
        sites: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(num_nodes, sites)
        self.answering = MessageHandler(app, batched_trainer)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Answer each message in turn; drop replies that took longer than ``timeout`` s.

        Replies of batched nodes are dropped all or none.
        """
        messages, replies = list(messages), []
        if (
            self.answering.batched_trainer
            and (batched := self._answer_at_once(messages, timeout)) is not None
        ):
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
        return deliver(answer(self.answering.app, deliver(message), context))

    def _answer_at_once(self, messages: list[Message], timeout: float | None) -> list[Message] | None:
        contexts = [self.context(message.metadata.dst_node_id) for message in messages]
        started = time.monotonic()
        replies = self.answering.at_once([deliver(message) for message in messages], contexts)
        if replies is None:
            return None
        in_time = timeout is None or time.monotonic() - started <= timeout
        return [deliver(reply) for reply in replies] if in_time else []
