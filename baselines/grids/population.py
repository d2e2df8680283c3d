"""Population: nodes that are known before anything is sent, each with its context at hand."""

from collections.abc import Iterable
from typing import ClassVar

from flwr.app import Context, Message, RecordDict, UserConfig

from strategies.shared import protocol
from strategies.shared.flower_private import SUPERLINK_NODE_ID, Run, become_server

from .answering import fresh
from .suite_grid import SuiteGrid


class Population(SuiteGrid):
    """A grid of ``num_nodes`` nodes; node k holds partition k.

    A context is made when its node is first addressed, so that the population costs nothing.

    Parameters
    ----------
    num_nodes : the population
    """

    gives_node_states: ClassVar[bool] = True

    def __init__(self, num_nodes: int) -> None:
        become_server()
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
        """Return what each node addressed so far keeps in its context, by partition id."""
        return {
            int(context.node_config[protocol.PARTITION_ID]): context.state
            for context in self._contexts.values()
        }

    def load_node_states(self, states: dict[int, RecordDict]) -> None:
        """Give each node what it kept."""
        node_ids = self.get_node_ids()
        for partition_id, state in states.items():
            self.context(node_ids[partition_id]).state = fresh(state)

    def context(self, node_id: int) -> Context:
        """Return a node's context; its state lives on between rounds, as everywhere in Flower."""
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
