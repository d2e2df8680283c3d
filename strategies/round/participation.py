"""Participation: which nodes a strategy asks, what it lets them judge, and when too few have answered.

Nodes are known by the partitions that they hold, so that a result depends on the seed and not on the
ids that a runtime gives its nodes. What is done with the answers is the subclass's.
"""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from strategies.parts.updates import Updates
from strategies.shared import protocol
from strategies.shared.checks import require, require_count

from .evaluation import SuiteStrategy
from .failures import NoStep, TooManyFailedRounds, end_if_alike
from .replies import (
    Diverged,
    Fault,
    answers,
    capped,
    checked,
    lacking,
    mean_metrics,
    names_without_number,
    num_examples_of,
    scalar_metrics,
)
from .roster import Roster, sample
from .sites import addressed, by_site
from .told import MOST_PARTITIONS
from .update_monitor import AUTO, Recovery, UpdateMonitor, require_max_norm

logger = logging.getLogger("flwr.strategies")
SITE_SHARE = (
    0.5  # the most that one site counts for in the mean over sites, unless evaluation.max_share says
)


@dataclass(kw_only=True, eq=False)
class Participation(SuiteStrategy):
    """A Flower strategy that knows whom to ask, and not yet what for.

    Parameters
    ----------
    nodes_per_round : K, how many nodes train in a round; None asks all. Groups share them
    num_nodes : N, how many nodes to wait for before the first round; None waits for those of a round
    min_replies : with fewer sound replies the model stays as it was in that round
    max_failed_rounds : so many such rounds in a row end the run with :class:`TooManyFailedRounds`
    federated_evaluation : whether the nodes evaluate the model on their own test data each round
    query_partitions : ask each node once for its partition id, which our ClientApp tells: then the seed
        alone decides who trains when. False: nodes are ordered by node id, which each run draws anew,
        unless ``members``, ``judges``, groups or a requester name partitions
    node_timeout : how many seconds to wait for nodes to connect
    max_norm : an update whose norm is more than so many times the median of those accepted is left out
        (:mod:`.update_monitor`); ``auto`` is 10, None leaves out none
    max_share : the largest share of one node in the mean over nodes that evaluate; 0 weighs all equally.
        None: 0.5 where nodes are sites, and else by test examples alone
    readmit : sites or nodes by name (``north``, ``node 3``) that take part again in a run that is resumed,
        after their update has ruined a model
    measures_norms : whether :meth:`update_norms` has those of each round, also where nothing else asks
    members : the partitions that take part; None for all
    judges : those of them that evaluate; None for all
    group : labels the messages, where several strategies share a round (:class:`~strategies.Grouped`)
    seed : decides which partitions train in which round
    """

    nodes_per_round: int | None = None
    num_nodes: int | None = None
    min_replies: int = 1
    max_failed_rounds: int = 3
    federated_evaluation: bool = True
    query_partitions: bool = False
    node_timeout: float = 120.0
    max_norm: float | str | None = None
    max_share: float | None = None
    readmit: tuple[str, ...] = ()
    measures_norms: bool = False
    members: tuple[int, ...] | None = None
    judges: tuple[int, ...] | None = None
    group: str = ""
    seed: int = 0

    _asked: dict[int, int] = field(default_factory=dict, init=False, repr=False)  # node ids by partition
    _sent: dict[int, Message] = field(default_factory=dict, init=False, repr=False)  # by partition
    trained: float = field(default=0.0, init=False, repr=False)  # examples behind the last updates
    tested: float = field(default=0.0, init=False, repr=False)  # test examples behind the last evaluation
    _at_sites: dict[str, dict[str, float]] = field(default_factory=dict, init=False, repr=False)
    _monitor: UpdateMonitor = field(default_factory=UpdateMonitor, init=False, repr=False)
    _recovery: Recovery = field(default_factory=Recovery, init=False, repr=False)
    _failed_rounds: int = field(default=0, init=False, repr=False)
    _last_failure: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse counts out of range, in one line each."""
        for name in ("nodes_per_round", "num_nodes"):
            require_count(name, getattr(self, name), optional=True)
        for name in ("min_replies", "max_failed_rounds"):
            require_count(name, getattr(self, name))
        require_max_norm(self.max_norm)
        share = self.max_share
        require(share is None or 0 <= share <= 1, "evaluation.max_share", share, "in [0, 1], or null")
        require(self.seed >= 0, "seed", self.seed, "a whole number, 0 or above")
        require(self.node_timeout >= 0, "node_timeout", self.node_timeout, "seconds, 0 or above")
        asked, population = self.nodes_per_round or self.num_nodes, self.num_nodes
        if asked is not None:
            valid = population is None or asked <= population
            require(valid, "nodes_per_round", asked, f"at most num_nodes={population}")
            require(self.min_replies <= asked, "min_replies", self.min_replies, f"at most {asked}")
        self._monitor.max_norm = AUTO if self.max_norm == "auto" else self.max_norm  # type: ignore[assignment]
        self._roster = Roster(self.query_partitions, self.node_timeout, population or MOST_PARTITIONS)
        if self.names_partitions:
            self._roster.mean_certain()

    @property
    def names_partitions(self) -> bool:
        """Whether certain partitions are meant, so that nodes are asked which they hold in any case."""
        return self.members is not None or self.judges is not None

    @property
    def most_in_round(self) -> int | None:
        """How many nodes a round can have, a group's members at most; None where that is not known."""
        asked = self.nodes_per_round or self.num_nodes
        if self.members is None:
            return asked
        return min(asked or len(self.members), len(self.members))

    def available(self, grid: Grid) -> dict[int, int]:
        """Return the node ids of the partitions that are connected and take part, by partition id."""
        first = not self._roster.partition_of
        wanted = (self.num_nodes or self.nodes_per_round or self.min_replies) if first else 1
        nodes = self._roster.available(grid, wanted)
        if self._recovery.excluded:
            nodes = {k: nodes[k] for k in nodes if k not in self._recovery.excluded}
        if self.members is None:
            return nodes
        return {k: nodes[k] for k in self.members if k in nodes}

    @property
    def is_guarded(self) -> bool:
        """Whether norms are looked at, and a ruined model is taken back: for sites, or if asked to."""
        return self.max_norm is not None or bool(self._roster.sites)

    def measure_norms(self) -> None:
        self.measures_norms = True

    def update_norms(self) -> dict[str, float]:
        return {self._short_name(k): norm for k, norm in self._monitor.norms.items()}

    def _short_name(self, partition_id: int) -> str:
        """Return a site's name, or ``node 3``, as metrics.csv has it."""
        names = {k: name for name, k in self._roster.sites.items()}
        return names.get(partition_id, f"node {partition_id}")

    def at_sites(self) -> dict[str, dict[str, float]]:
        return self._at_sites

    def contributions(self) -> dict[str, dict[str, int]]:
        kept = self._roster.ledger.kept
        return {self._roster.called(k): kept[k] for k in sorted(kept)}

    def fail_within(self, rounds: int) -> None:
        self.max_failed_rounds = min(self.max_failed_rounds, rounds)

    def choose(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the partitions to ask in this round, out of those that are connected."""
        return sample(partition_ids, self.nodes_per_round or len(partition_ids), self.seed, server_round)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send every node the model to be judged (see :meth:`models`)."""
        if not self.federated_evaluation:
            self._asked, self._sent = {}, {}
            return []
        nodes = self.available(grid)
        self._asked = {k: node for k, node in nodes.items() if self.judges is None or k in self.judges}
        (judged,) = self.models(arrays).values()
        told = ConfigRecord({**config, protocol.SERVER_ROUND: server_round})
        content = RecordDict({protocol.ARRAYS: judged, protocol.CONFIG: told})
        return self._messages(content, MessageType.EVALUATE)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average the nodes' metrics, weighted by their numbers of test examples."""
        answered = answers(self._sent, replies)
        self._listen(answered)
        sound, faults = dict[int, Message](), dict[int, str]()
        diverged = dict[int, Message]()  # where they are half or more, the mean is no number either
        for partition_id in self._sent:
            try:
                expected = partition_id if self._roster.told else None
                sound[partition_id] = checked(answered.get(partition_id), expected)
            except Fault as fault:
                faults[partition_id] = str(fault)
                if isinstance(fault, Diverged) and num_examples_of(answered[partition_id]) > 0:
                    diverged[partition_id] = answered[partition_id]
        judged = {k: reply for k, reply in sound.items() if num_examples_of(reply) > 0}
        faults |= lacking(judged)
        for partition_id, reason in faults.items():
            who = self._roster.called(partition_id)
            logger.warning("round %d: %s did not evaluate: %s", server_round, who, reason)
        judged = {k: reply for k, reply in judged.items() if k not in faults}
        self._at_sites = by_site(self._roster.sites, dict(sorted((judged | diverged).items())))
        names = {name for reply in diverged.values() for name in names_without_number(reply)}
        are_most = 2 * len(diverged) >= len(judged) + len(diverged)  # fewer may not spoil it for all
        are_most = are_most and not self.group  # nor may one group for the others
        lost: dict[str, Any] = dict.fromkeys(sorted(names), math.nan) if are_most else {}
        if not judged:
            return MetricRecord(lost) if lost else None
        metrics = scalar_metrics(judged.values())
        examples = metrics.pop(protocol.NUM_EXAMPLES)
        self.tested = float(examples.sum())
        share = self.max_share if self.max_share is not None or not self._roster.sites else SITE_SHARE
        weights = examples if share is None else capped(examples, share)
        return MetricRecord({**mean_metrics(metrics, weights), **lost})

    def summary(self) -> None:
        """Log the strategy and its parts."""
        logger.info("\t%r", self)

    # ---- for subclasses ------------------------------------------------------------------------

    def _messages(
        self, content: RecordDict, message_type: str, others: Mapping[int, RecordDict] | None = None
    ) -> list[Message]:
        """Return a message to each of the nodes that are asked; a site is told its number.

        ``others`` are the contents for some of them, by partition.
        """
        own, sites = others or {}, self._roster.sites
        self._sent = {
            k: Message(addressed(own.get(k, content), k, sites), node, message_type, group_id=self.group)
            for k, node in self._asked.items()
        }
        return list(self._sent.values())

    def _listen(self, answered: Mapping[int, Message]) -> None:
        """Take from the replies to a round's messages, by partition, what they say of their nodes."""

    def _standing(self) -> dict[str, Any]:
        """Return what the next round depends on of this round's participation."""
        roster = self._roster
        kept: dict[str, Any] = {"sites": dict(roster.sites), "contributions": roster.ledger.state_dict()}
        if self.is_guarded:
            kept |= {"monitor": self._monitor.state_dict(), "recovery": self._recovery.state_dict()}
        return {"failed_rounds": self._failed_rounds, **kept}

    def _stand_at(self, state: dict[str, Any]) -> None:
        self._failed_rounds = state["failed_rounds"]
        self._roster.sites.update(state.get("sites", {}))
        self._roster.ledger.load_state_dict(state.get("contributions", {}))
        if "monitor" in state:
            self._monitor.load_state_dict(state["monitor"])
            self._recovery.load_state_dict(state["recovery"])
            excluded = self._recovery.excluded
            excluded -= {k for k in excluded if self._short_name(k) in self.readmit}

    def _note(
        self, server_round: int, updates: Updates, faults: dict[int, str], answered: dict[int, Message]
    ) -> None:
        """Count what each node has contributed; log why others are left out, and doubt who they are."""
        if server_round == 1 and not self.group:
            end_if_alike(len(self._sent), answered)
        self.trained = float(updates.num_examples.sum())
        examples = map(int, updates.num_examples.tolist())
        self._roster.ledger.note(dict(zip(updates.partition_ids, examples, strict=True)), faults)
        self._roster.doubt({answered[k].metadata.src_node_id for k in faults if k in answered})
        for k, reason in faults.items():
            logger.warning("round %d: %s left out: %s", server_round, self._roster.called(k), reason)

    def _fail(self, server_round: int, lack: NoStep, faults: dict[int, str]) -> None:
        """Count a round without a step; end the run after too many in a row."""
        self._failed_rounds += 1
        logger.warning("round %d: %s: the model stays as it was", server_round, lack)
        reasons = "; ".join(f"{self._roster.called(p)} {r}" for p, r in list(faults.items())[:3])
        self._last_failure = f"{lack} (left out in the last round: {reasons or 'none'})"
        if self._failed_rounds >= self.max_failed_rounds:
            raise TooManyFailedRounds(
                f"{self._failed_rounds} rounds in a row failed: {self._last_failure}; "
                "look at the nodes, or lower min_replies"
            )
