"""Population: nodes that are known before anything is sent, each with its context at hand."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from flwr.app import Context, Message, RecordDict, UserConfig

from strategies.shared import protocol
from strategies.shared.flower_private import SUPERLINK_NODE_ID, Run, become_server

from .answering import fresh
from .suite_grid import SuiteGrid


class Population(SuiteGrid):
    """A grid of ``num_nodes`` nodes; node k holds partition k, or is the k-th site.

    A context is made when its node is first addressed, so that the population costs nothing.

    Parameters
    ----------
    num_nodes : the population
    sites : {name: path} of data of the nodes' own, one for each node; empty where they hold partitions
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
        """Return what each node addressed so far keeps in its context, by its position."""
        return {_position(node_id): context.state for node_id, context in self._contexts.items()}

    def load_node_states(self, states: dict[int, RecordDict]) -> None:
        """Give each node what it kept."""
        node_ids = self.get_node_ids()
        for partition_id, state in states.items():
            self.context(node_ids[partition_id]).state = fresh(state)

    def context(self, node_id: int) -> Context:
        """Return a node's context; its state lives on between rounds, as everywhere in Flower."""
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
