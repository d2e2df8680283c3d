"""Register nodes: their partitions, and what each has contributed.

Flower's node ids are random numbers; partition ids (0 ... N-1) are stable. Nodes are therefore drawn,
and their replies sorted, by partition id: the same seed asks the same partitions on every runtime.
"""

import logging
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, ConfigScalar, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from strategies.shared import protocol
from strategies.shared.flower_private import UNREACHABLE_CODES
from strategies.shared.seeding import Purpose, generator

from .replies import match_replies, metrics_of
from .strategy import get_error_reason

logger = logging.getLogger("flwr.strategies")

MAX_PARTITIONS = 1 << 20  # some weightings keep a number for each
POLL_SECONDS = 0.1
NO_PARTITION_IDS_WARNING = "%d nodes do not say which partition they hold: they are ordered by node id"
WAITING_MESSAGE = (
    "waiting for %d nodes, of which %d are known so far, for %.0f s at most (node_timeout); those "
    "that refuse are asked again"
)
SINGLE_NODE_ERROR = (
    "{known} node has said who it is within {seconds:.0f} s, and a federation has {least} at least: set "
    "num_nodes=1 to begin with one, or node_timeout to wait longer"
)
REFUSED_NODE_WARNING = "node {node} does not say which partition it holds, and is asked again: {why}"
LOST_STATE_WARNING = "round %d: %s has lost what it kept between rounds (it was restarted?)"


@dataclass(frozen=True)
class ClientInfo:
    """A node's answer.

    Parameters
    ----------
    partition_id : the partition that it holds; None for a site, and where it does not say
    site : the name of a site with data of its own; empty for none
    fault : why the node takes no part, in one line; empty where nothing is wrong
    """

    partition_id: int | None = None
    site: str = ""
    fault: str = ""

    @classmethod
    def from_reply(cls, reply: Message, most: int) -> "ClientInfo":
        """Read a reply; partition ids are below ``max_partitions``."""
        if reply.has_error():
            return cls(fault=get_error_reason(reply))
        config = reply.content.get(protocol.CONFIG)
        if isinstance(config, ConfigRecord) and protocol.SITE in config:
            refused = _format_line(str(config.get(protocol.REFUSED, "")))
            return cls(
                site=_format_line(str(config[protocol.SITE]))[:80] or "without a name", fault=refused
            )
        partition_id = metrics_of(reply).get(protocol.PARTITION_ID)
        if type(partition_id) is not int:  # the query of another ClientApp
            return cls(fault=_find_id_fault(partition_id, most))
        return cls(
            partition_id=partition_id,
            fault="" if 0 <= partition_id < most else _find_id_fault(partition_id, most),
        )


def _format_line(text: str) -> str:
    return " ".join(text.split())


def _find_id_fault(value: object, most: int) -> str:
    if value is None:
        return "no partition id in its answer"
    long = isinstance(value, int) and value.bit_length() > 64  # some are too long to be printed
    text = "far too large" if long else str(value)[:20]
    return f"{protocol.PARTITION_ID} is {text}, expected a whole number from 0 to {most - 1}"


@dataclass
class ContributionLog:
    """By partition: how many ``updates`` were sound, how often it was ``left_out``, and on how many
    ``examples`` it trained last.
    """

    counts: dict[int, dict[str, int]] = field(default_factory=dict)

    def count_round(self, examples: Mapping[int, int], left_out: Iterable[int]) -> None:
        """Count a round: {partition: examples} of the sound updates, and who was asked in vain."""
        for partition_id, count in examples.items():
            entry = self._get_counts(partition_id)
            entry["updates"] += 1
            entry["examples"] = count
        for partition_id in left_out:
            self._get_counts(partition_id)["left_out"] += 1

    def _get_counts(self, partition_id: int) -> dict[str, int]:
        return self.counts.setdefault(partition_id, {"updates": 0, "left_out": 0, "examples": 0})

    def state_dict(self) -> dict[int, dict[str, int]]:
        """Return what a run resumes from."""
        return {k: dict(entry) for k, entry in self.counts.items()}

    def load_state_dict(self, state: dict[int, dict[str, int]]) -> None:
        """Put back what ``state_dict`` gave; the state stays the caller's own."""
        self.counts.update({k: dict(entry) for k, entry in state.items()})


@dataclass
class ClientRegistry:
    """The nodes known so far.

    A node holds a partition, or is a *site* with data of its own, known by its name. Sites are numbered in
    the order of their names, those that come later after them, and keep their numbers.

    Parameters
    ----------
    query : ask each new node once for its partition id; where no node tells, as one of another ClientApp,
        they are numbered in the order of node ids
    timeout : how many seconds to wait for nodes to appear and to answer
    max_partitions : partition ids are below it
    query_config : the configuration of the query that asks nodes who they are
    frozen_at : by partition, which node has frozen parameters, and their hash; None for whichever node
    """

    query: bool = True
    timeout: float = 120.0
    max_partitions: int = MAX_PARTITIONS
    partition_of: dict[int, int] = field(default_factory=dict)
    sites: dict[str, int] = field(default_factory=dict)  # their numbers, by name
    contribution_log: ContributionLog = field(default_factory=ContributionLog)
    query_config: dict[str, ConfigScalar] = field(default_factory=dict)
    frozen_at: dict[int, tuple[int | None, str]] = field(default_factory=dict)
    _site_of: dict[int, str] = field(default_factory=dict, init=False, repr=False)
    _node_of: dict[str, int] = field(default_factory=dict, init=False, repr=False)  # by site, the last
    has_partition_ids: bool = field(default=False, init=False, repr=False)  # whether any node said its id
    _requires_partition_ids: bool = field(
        default=False, init=False, repr=False
    )  # whether settings name partitions
    _refusals: dict[int, str] = field(default_factory=dict, init=False, repr=False)  # why refused, by node
    _disconnected: set[int] = field(default_factory=set, init=False, repr=False)  # known, and not connected
    _online: set[int] = field(default_factory=set, init=False, repr=False)  # known and connected, last
    _nodes: dict[int, int] = field(default_factory=dict, init=False, repr=False)  # what it returned

    def find_nodes(self, grid: Grid, num_nodes: int, least: int = 1) -> dict[int, int]:
        """Return the connected nodes as {partition id: node id}, ascending.

        Waits until ``num_nodes`` are known or the time limit is over, then goes on with those there are. One
        that was away is asked again. Raises ``TimeoutError`` when there are fewer than ``least``.
        """
        deadline = time.monotonic() + self.timeout
        queried, is_waiting = set[int](), False
        while True:
            online = set(grid.get_node_ids())
            if online == self._online and len(self._nodes) >= num_nodes:
                return dict(self._nodes)
            self._disconnected |= self._known - online
            if new := online - self._present - queried:
                self._register(grid, sorted(new))
                queried |= new
                continue  # more may have connected meanwhile
            known, late = online & self._present, time.monotonic() > deadline
            if len(known) >= num_nodes or (len(known) >= least and late):
                break
            if late and known:
                raise TimeoutError(
                    SINGLE_NODE_ERROR.format(known=len(known), least=least, seconds=self.timeout)
                )
            if late:
                raise TimeoutError(self._explain_no_nodes(online))
            if not is_waiting:
                logger.info(WAITING_MESSAGE, num_nodes, len(known), deadline - time.monotonic())
                is_waiting = True
            time.sleep(POLL_SECONDS)
            queried.clear()
        if len(known) < num_nodes:
            here = "are connected" if known == online else f"take part, of {len(online)} that are connected"
            logger.warning("%d of %d nodes %s: continuing with them", len(known), num_nodes, here)
        if self._site_of:
            self._number_sites(known)
        nodes = dict(sorted((k, node) for node, k in self.partition_of.items() if node in known))
        for k in [k for k, node in self._nodes.items() if k not in nodes and node not in self._refusals]:
            logger.warning("%s is no longer connected: continuing without it", self.display_name(k))
        self._online, self._nodes = known, nodes  # one that is not known yet is asked again
        return dict(nodes)

    def _explain_no_nodes(self, online: set[int]) -> str:
        """Say why no node takes part, of those that are connected."""
        refusals = [why for node, why in self._refusals.items() if node in online]
        within = f"within {self.timeout:.0f} s"
        if not online:
            return f"no node has connected {within}"
        if not refusals:
            return f"no node has said who it is, of {len(online)} that are here and may be busy, {within}"
        none = f"no node takes part {within}, of {len(online)} that are connected"
        return "; ".join([none, *refusals[:3]])

    def require_partition_ids(self) -> None:
        """Ask nodes who they are in any case, and warn where none says it."""
        self.query = self._requires_partition_ids = True

    def display_name(self, partition_id: int) -> str:
        """Return the name that the log uses: ``site north``, or ``partition 0``."""
        names = {k: name for name, k in self.sites.items()}
        return f"site {names[partition_id]}" if partition_id in names else f"partition {partition_id}"

    def short_name(self, partition_id: int) -> str:
        """Return a site's name, or ``node 3``, as metrics.csv has it."""
        names = {k: name for name, k in self.sites.items()}
        return names.get(partition_id, f"node {partition_id}")

    def recheck(self, nodes: set[int]) -> None:
        """Ask nodes again who they are, before the next round: they may have been configured anew."""
        if self.has_partition_ids and (doubted := self._known & nodes):
            self._disconnected, self._online = self._disconnected | doubted, set()

    @property
    def _known(self) -> set[int]:
        return self.partition_of.keys() | self._site_of.keys()

    @property
    def _present(self) -> set[int]:
        return self._known - self._disconnected

    def _register(self, grid: Grid, nodes: list[int]) -> None:
        """Learn who new nodes are; one that is unreachable is asked again later."""
        if not self.query:
            self._assign_numbers(nodes)
            return
        content = RecordDict({protocol.CONFIG: ConfigRecord(dict(self.query_config))})
        messages = [Message(content, node, MessageType.QUERY) for node in nodes]
        silent: dict[int, str] = {}
        held = {of[n]: n for n in self._present for of in (self._site_of, self.partition_of) if n in of}
        replies = grid.send_and_receive(messages, timeout=self.timeout)
        answered = match_replies(dict(zip(nodes, messages, strict=True)), replies)
        for node, reply in sorted(answered.items(), key=lambda one: (one[0] not in self._known, one[0])):
            if reply.has_error() and reply.error.code in UNREACHABLE_CODES:
                continue
            info = ClientInfo.from_reply(reply, self.max_partitions)
            if not info.fault:
                self._accept(node, info, held)
            elif info.site:
                self._refuse(node, f"site {info.site} takes no part: {info.fault}")
            elif info.partition_id is not None:
                self._refuse(node, REFUSED_NODE_WARNING.format(node=node, why=info.fault))
            else:  # no query function, one of another kind, or one that failed
                silent[node] = info.fault
        if silent and not self.has_partition_ids:
            logger.log(
                logging.WARNING if self._requires_partition_ids else logging.INFO,
                NO_PARTITION_IDS_WARNING,
                len(silent),
            )
            self._assign_numbers(sorted(silent))
            return
        for node in sorted(silent):  # a number would be another node's partition
            self._refuse(node, REFUSED_NODE_WARNING.format(node=node, why=silent[node]))

    def _accept(self, node: int, info: ClientInfo, held: dict[int | str, int]) -> None:
        """Register a node, unless another connected node claims the same partition or site."""
        self.has_partition_ids = True
        holder = held.setdefault(info.site if info.partition_id is None else info.partition_id, node)
        if holder != node:
            what = f"is site {info.site}" if info.site else f"holds partition {info.partition_id}"
            claims = f"node {node} says that it {what}, as node {holder} does"
            self._refuse(node, f"{claims}, and is not asked: give each its own")
            return
        before = self._node_of.get(info.site, node)
        if before != node:
            logger.warning(
                "site %s was node %d and is node %d now: with authenticated nodes, its key has changed",
                *(info.site, before, node),
            )
        self._disconnected.discard(node)
        self._refusals.pop(node, None)
        self._site_of.pop(node, None)
        self.partition_of.pop(node, None)
        if info.partition_id is not None:
            self.partition_of[node] = info.partition_id
        else:
            self._site_of[node], self._node_of[info.site] = info.site, node

    def _refuse(self, node: int, why: str) -> None:
        """Say once why a node takes no part; it is asked again, as its owner may correct it."""
        if self._refusals.get(node) != why:
            logger.warning("%s", why)
            self._refusals[node] = why

    def _number_sites(self, known: set[int]) -> None:
        """Give new sites their numbers, in the order of their names; one beyond the last takes no part."""
        for name, node in sorted((self._site_of[node], node) for node in known & self._site_of.keys()):
            free = max((*self.sites.values(), *self.partition_of.values()), default=-1) + 1
            if name in self.sites or free < self.max_partitions:
                self.partition_of[node] = self.sites.setdefault(name, free)
            else:
                self._refuse(
                    node, f"site {name} takes no part: num_nodes={self.max_partitions} others came before"
                )

    def _assign_numbers(self, nodes: list[int]) -> None:
        self._disconnected -= set(nodes)
        new = [node for node in nodes if node not in self.partition_of]
        first = max(self.partition_of.values(), default=-1) + 1
        self.partition_of.update(zip(new, range(first, first + len(new)), strict=True))


@dataclass
class LostStateMonitor:
    """Notices nodes that lose what they keep between rounds, and would train on as if nothing had happened.

    A node's variate, private layers, own model or moments lie in the memory of its process.
    """

    _keepers: set[int] = field(default_factory=set)  # by partition

    def check_round(
        self, server_round: int, has_saved_state: Mapping[int, object], registry: ClientRegistry
    ) -> None:
        """Take note of which partitions say that they still have what they keep, and log which do not."""
        for k in sorted(k for k in self._keepers if has_saved_state.get(k) is False):
            logger.warning(LOST_STATE_WARNING, server_round, registry.display_name(k))
        self._keepers |= has_saved_state.keys()


def sample_partitions(
    partition_ids: list[int],
    count: int,
    seed: int,
    server_round: int,
    purpose: Purpose = Purpose.SAMPLE_NODES,
) -> list[int]:
    """Draw ``count`` partitions without replacement; all of them when there are no more."""
    if count >= len(partition_ids):
        return sorted(partition_ids)
    rng = generator(seed, purpose, server_round=server_round)
    return sorted(int(p) for p in rng.choice(sorted(partition_ids), count, replace=False))


def count_share(count: int, share: float) -> int:
    """Return a share of the nodes, rounded down; at least one."""
    return max(1, math.floor(share * count + 1e-9))
