"""Roster: which node holds which partition, and which nodes a round asks.

Flower's node ids are random numbers; partition ids (0 ... N-1) are stable. Nodes are therefore drawn,
and their replies sorted, by partition id: the same seed asks the same partitions on every runtime.
"""

import logging
import time
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from strategies.shared import protocol
from strategies.shared.flower_private import UNREACHABLE
from strategies.shared.seeding import Purpose, generator

from .replies import answers, metrics_of

logger = logging.getLogger("flwr.strategies")
POLL_SECONDS = 0.1
MOST_PARTITIONS = 1 << 20  # some weightings keep a number for each


@dataclass
class Roster:
    """The nodes known so far.

    Parameters
    ----------
    query : ask each new node once for its partition id (the query function of our ClientApp); where no
        node tells, as one of another ClientApp, they are numbered in the order of node ids
    timeout : how many seconds to wait for nodes to appear and to answer
    """

    query: bool = True
    timeout: float = 120.0
    partition_of: dict[int, int] = field(default_factory=dict)
    _told: bool = field(default=False, init=False, repr=False)  # whether any node did
    _named: set[int] = field(default_factory=set, init=False, repr=False)  # who did not, though others did
    _online: set[int] = field(default_factory=set, init=False, repr=False)  # who all were known
    _nodes: dict[int, int] = field(default_factory=dict, init=False, repr=False)  # and what was returned

    def available(self, grid: Grid, wanted: int) -> dict[int, int]:
        """Return the connected nodes as {partition id: node id}, ascending.

        Waits until ``wanted`` nodes are known or the time limit is over, then goes on with those
        there are. Raises ``TimeoutError`` when there is none.
        """
        deadline = time.monotonic() + self.timeout
        asked: set[int] = set()
        while True:
            online = set(grid.get_node_ids())
            if online == self._online and len(self._nodes) >= wanted:
                return dict(self._nodes)
            if new := online - self.partition_of.keys() - asked:
                self._enrol(grid, sorted(new))
                asked |= new
                continue  # more may have connected meanwhile
            known = online & self.partition_of.keys()
            if len(known) >= wanted:
                break
            if time.monotonic() > deadline:
                if not known:
                    raise TimeoutError(f"no node has connected within {self.timeout:.0f} s")
                break
            time.sleep(POLL_SECONDS)
            asked.clear()
        if len(known) < wanted:
            logger.warning("%d of %d nodes are connected: continuing with them", len(known), wanted)
        holders = {k: node for node, k in self.partition_of.items() if node in known}  # the last that came
        nodes = dict(sorted(holders.items()))
        for node in sorted(known - set(nodes.values())):  # one restarted, or two with one configuration
            partition_id = self.partition_of[node]
            logger.warning(
                "nodes %d and %d both hold partition %d, and only the latter is asked: give each its own",
                *(node, nodes[partition_id], partition_id),
            )
        for partition_id in sorted(self._nodes.keys() - nodes.keys()):
            logger.warning("partition %d is no longer connected: continuing without it", partition_id)
        self._online, self._nodes = known, nodes  # one that is not known yet is asked again
        return dict(nodes)

    def _enrol(self, grid: Grid, nodes: list[int]) -> None:
        """Learn the partition ids of new nodes; one that is unreachable is asked again later."""
        if not self.query:
            self._number(nodes)
            return
        content = RecordDict({protocol.CONFIG: ConfigRecord()})
        messages = [Message(content, node, MessageType.QUERY) for node in nodes]
        silent: dict[int, str] = {}
        replies = grid.send_and_receive(messages, timeout=self.timeout)
        for node, reply in sorted(answers(dict(zip(nodes, messages, strict=True)), replies).items()):
            if reply.has_error() and reply.error.code in UNREACHABLE:
                continue
            told = None if reply.has_error() else metrics_of(reply).get(protocol.PARTITION_ID)
            if type(told) is int and 0 <= told < MOST_PARTITIONS:
                self.partition_of[node] = told
                self._told = True
            else:  # no query function, one of another kind, or one that failed
                silent[node] = str(reply.error.reason) if reply.has_error() else _unfit(told)
        if silent and not self._told:
            logger.info(
                "%d nodes do not say which partition they hold: they are ordered by node id", len(silent)
            )
            self._number(sorted(silent))
            return
        for node in sorted(silent.keys() - self._named):  # a number would be another node's partition
            why = " ".join(silent[node].split())
            logger.warning(
                "node %d does not say which partition it holds, and is asked again: %s", node, why
            )
            self._named.add(node)

    def _number(self, nodes: list[int]) -> None:
        first = max(self.partition_of.values(), default=-1) + 1
        self.partition_of.update(zip(nodes, range(first, first + len(nodes)), strict=True))


def _unfit(told: object) -> str:
    if told is None:
        return "no partition id in its answer"
    long = isinstance(told, int) and told.bit_length() > 64  # some are too long to be printed
    shown = "far too large" if long else str(told)[:20]
    return f"{protocol.PARTITION_ID} is {shown}, expected a whole number from 0 to {MOST_PARTITIONS - 1}"


def sample(partition_ids: list[int], count: int, seed: int, server_round: int) -> list[int]:
    """Draw ``count`` partitions without replacement; all of them when there are no more."""
    if count >= len(partition_ids):
        return sorted(partition_ids)
    rng = generator(seed, Purpose.SAMPLE_NODES, server_round=server_round)
    return sorted(int(p) for p in rng.choice(sorted(partition_ids), count, replace=False))
