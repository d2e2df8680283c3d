"""Participation: which nodes a strategy asks, what it lets them judge, and when too few have answered.

Nodes are known by the partitions that they hold, so that a result depends on the seed and not on the
ids that a runtime gives its nodes. What is done with the answers is the subclass's.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, ConfigScalar, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from strategies.parts.layout import Layout
from strategies.parts.updates import Updates
from strategies.shared import protocol
from strategies.shared.arrays import without
from strategies.shared.checks import require, require_count
from strategies.shared.compression import Compression, NoCompression
from strategies.shared.seeding import Purpose, generator

from .client_registry import MOST_PARTITIONS, ClientRegistry, sample, share_of
from .replies import (
    Diverged,
    Fault,
    answers,
    capped,
    checked,
    lacking,
    mean_lists,
    mean_metrics,
    measures_of,
    num_examples_of,
    said,
    scalar_metrics,
    void_mean,
    within,
)
from .strategy import BaseStrategy, Lacking, NoStep, TooManyFailedRounds, end_if_alike
from .update_monitor import AUTO, Recovery, UpdateMonitor, has_lost_the_nodes, require_max_norm

logger = logging.getLogger("flwr.strategies")


# Sites: nodes with data of their own, by the numbers that the roster gave them.


def addressed(content: RecordDict, number: int, sites: Mapping[str, int]) -> RecordDict:
    """Return what a node is sent; a site has no partition of its own, and is told its number."""
    if number not in sites.values():
        return content
    config = ConfigRecord({**content.config_records[protocol.CONFIG], protocol.PARTITION_ID: number})
    return RecordDict({**content, protocol.CONFIG: config})


def by_site(sites: Mapping[str, int], judged: Mapping[int, Message]) -> dict[str, dict[str, float]]:
    """Return the metrics that each node has sent, by its site's name or as ``node 3``, by its partition.

    ``judged`` are replies by number.
    """
    names = {number: name for name, number in sites.items()}
    return {
        names.get(k, f"node {k}"): {
            key: value for key, value in measures_of(reply).items() if key != protocol.PARTITION_ID
        }
        for k, reply in judged.items()
    }


MetricsFunction = Callable[[list[RecordDict], str], MetricRecord]
LEAST_NODES = 2  # to begin with, where nobody says how many there are
LOOK_AT_NODES = "look at the nodes, or lower min_replies"
LOWER_RATE = "the losses are no numbers: lower the learning rate of the clients"
SITE_SHARE = (
    0.5  # the most that one site counts for in the mean over sites, unless evaluation.max_share says
)


@dataclass(kw_only=True, eq=False)
class Participation(BaseStrategy):
    """A Flower strategy that knows whom to ask, and not yet what for.

    Parameters
    ----------
    nodes_per_round : K, how many nodes train in a round; None asks all. Groups share them
    num_nodes : N, how many nodes to wait for before the first round; None waits for those of a round, and
        for two at least, as Flower's strategies do
    min_replies : with fewer sound replies the model stays as it was in that round
    max_failed_rounds : so many such rounds in a row end the run with :class:`TooManyFailedRounds`
    fraction_train : K as a share of N, or of the nodes that are connected, rounded down (Flower's name)
    federated_evaluation : whether the nodes evaluate the model on their own test data each round
    fraction_evaluate : how many of them do, as a share, rounded down; 0 for none (Flower's name)
    train_metrics_aggr_fn, evaluate_metrics_aggr_fn : makes the round's metrics of what the nodes sent,
        (list of RecordDict, name of the metric that counts examples) -> MetricRecord; None averages
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
    fraction_train: float | None = None
    num_nodes: int | None = None
    min_replies: int = 1
    max_failed_rounds: int = 3
    federated_evaluation: bool = True
    fraction_evaluate: float = 1.0
    train_metrics_aggr_fn: MetricsFunction | None = None
    evaluate_metrics_aggr_fn: MetricsFunction | None = None
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
    _has_asked_to: set[str] = field(default_factory=set, init=False, repr=False)  # train, evaluate
    trained: float = field(default=0.0, init=False, repr=False)  # examples behind the last updates
    tested: float = field(default=0.0, init=False, repr=False)  # test examples behind the last evaluation
    diverged: list[Message] = field(default_factory=list, init=False, repr=False)  # in that evaluation
    num_judged: int = field(default=0, init=False, repr=False)  # sound replies there
    _at_sites: dict[str, dict[str, float]] = field(default_factory=dict, init=False, repr=False)
    _monitor: UpdateMonitor = field(default_factory=UpdateMonitor, init=False, repr=False)
    _recovery: Recovery = field(default_factory=Recovery, init=False, repr=False)
    _failed_rounds: int = field(default=0, init=False, repr=False)
    _last_failure: str = field(default="", init=False, repr=False)
    _advice: str = field(default=LOOK_AT_NODES, init=False, repr=False)
    hopeless: str = field(default="", init=False, repr=False)  # why no round can ever take a step
    _told_lines: set[str] = field(default_factory=set, init=False, repr=False)

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
        self._require_fractions()
        require(self.node_timeout >= 0, "node_timeout", self.node_timeout, "seconds, 0 or above")
        population = self.num_nodes
        asked = self.nodes_per_round or (population and self.count_in_round(population))
        if asked is not None:
            valid = population is None or asked <= population
            require(valid, "nodes_per_round", asked, f"at most num_nodes={population}")
            require(self.min_replies <= asked, "min_replies", self.min_replies, f"at most {asked}")
        self._monitor.max_norm = AUTO if self.max_norm == "auto" else self.max_norm  # type: ignore[assignment]
        self._roster = ClientRegistry(
            self.query_partitions, self.node_timeout, population or MOST_PARTITIONS
        )
        if self.names_partitions:
            self._roster.require_partition_ids()

    def _require_fractions(self) -> None:
        """Refuse what is no share, two answers to the question how many train, and what is no function."""
        train, evaluate = self.fraction_train, self.fraction_evaluate
        require(train is None or 0 < train <= 1, "fraction_train", train, "above 0, at most 1, or None")
        require(0 <= evaluate <= 1, "fraction_evaluate", evaluate, "in [0, 1]")
        both = train is not None and self.nodes_per_round is not None
        require(
            not both, "fraction_train", train, f"None, as nodes_per_round={self.nodes_per_round} counts"
        )
        for name in ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"):
            given = getattr(self, name)
            require(
                given is None or callable(given), name, given, "a function of the nodes' replies, or None"
            )

    @property
    def names_partitions(self) -> bool:
        """Whether certain partitions are meant, so that nodes are asked which they hold in any case."""
        return self.members is not None or self.judges is not None

    @property
    def most_in_round(self) -> int | None:
        """How many nodes a round can have, a group's members at most; None where that is not known."""
        asked = self.nodes_per_round or (self.num_nodes and self.count_in_round(self.num_nodes))
        if self.members is None:
            return asked
        return min(asked or len(self.members), len(self.members))

    @property
    def examples_key(self) -> str:
        """The metric of a reply that counts its examples."""
        return protocol.NUM_EXAMPLES

    def count_in_round(self, nodes: int) -> int:
        """Return how many of so many nodes train in a round."""
        if self.fraction_train is None:
            return self.nodes_per_round or nodes
        return max(share_of(nodes, self.fraction_train), self.min_replies)

    def available(self, grid: Grid) -> dict[int, int]:
        """Return the node ids of the partitions that are connected and take part, by partition id."""
        first = not self._roster.partition_of
        nodes = self._roster.available(grid, *(self._wanted_at_first() if first else (1,)))
        if self._recovery.excluded:
            nodes = {k: nodes[k] for k in nodes if k not in self._recovery.excluded}
        if self.members is None:
            return nodes
        return {k: nodes[k] for k in self.members if k in nodes}

    def _wanted_at_first(self) -> tuple[int, int]:
        """Return how many nodes to wait for before the first round, and with how many to begin at least."""
        if self.num_nodes:
            return self.num_nodes, 1
        least = LEAST_NODES if self.members is None else min(LEAST_NODES, len(self.members))
        return max(self.nodes_per_round or self.min_replies, least), least

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

    def per_site_metrics(self) -> dict[str, dict[str, float]]:
        return self._at_sites

    def participation_counts(self) -> dict[str, dict[str, int]]:
        kept = self._roster.ledger.kept
        return {self._roster.display_name(k): kept[k] for k in sorted(kept)}

    def set_num_rounds(self, rounds: int) -> None:
        self.max_failed_rounds = min(self.max_failed_rounds, rounds)

    def choose(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the partitions to ask in this round, out of those that are connected."""
        return sample(partition_ids, self.count_in_round(len(partition_ids)), self.seed, server_round)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send every node the model to be judged (see :meth:`models`)."""
        if not self.federated_evaluation or self.fraction_evaluate == 0:
            self._asked, self._sent = {}, {}
            return []
        nodes = self.available(grid)
        judges = [k for k in nodes if self.judges is None or k in self.judges]
        if self.fraction_evaluate < 1:
            count = share_of(len(judges), self.fraction_evaluate)
            judges = sample(judges, count, self.seed, server_round, Purpose.EVALUATING_NODES)
        self._asked = {k: nodes[k] for k in judges}
        (judged,) = self.models_to_evaluate(arrays).values()
        told = ConfigRecord({**config, protocol.SERVER_ROUND: server_round})
        content = RecordDict({protocol.ARRAYS: judged, protocol.CONFIG: told})
        return self._messages(content, MessageType.EVALUATE)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average the nodes' metrics, weighted by their numbers of test examples."""
        answered, key = self._answers(MessageType.EVALUATE, replies), self.examples_key
        self._listen(answered)
        sound, faults = dict[int, Message](), dict[int, str]()
        diverged = dict[int, Message]()
        for partition_id in self._sent:
            try:
                expected = partition_id if self._roster.told else None
                sound[partition_id] = checked(answered.get(partition_id), expected, key)
            except Fault as fault:
                faults[partition_id] = str(fault)
                if isinstance(fault, Diverged) and num_examples_of(answered[partition_id], key) > 0:
                    diverged[partition_id] = answered[partition_id]
        judged = {k: reply for k, reply in sound.items() if num_examples_of(reply, key) > 0}
        faults |= lacking(judged)
        for partition_id, reason in faults.items():
            who = self._roster.display_name(partition_id)
            logger.warning("round %d: %s did not evaluate: %s", server_round, who, reason)
        judged = {k: reply for k, reply in judged.items() if k not in faults}
        self._at_sites = by_site(self._roster.sites, dict(sorted((judged | diverged).items())))
        self.diverged, self.num_judged = list(diverged.values()), len(judged)
        lost: dict[str, Any] = {} if self.group else void_mean(self.diverged, len(judged), key)
        if not judged:
            return MetricRecord(lost) if lost else None
        metrics = scalar_metrics(judged.values(), self._tell_once)
        examples = metrics.pop(key)
        self.tested = float(examples.sum())
        share = self.max_share if self.max_share is not None or not self._roster.sites else SITE_SHARE
        weights = examples if share is None else capped(examples, share)
        if self.evaluate_metrics_aggr_fn is not None:
            return MetricRecord({**self._aggregate("evaluate_metrics_aggr_fn", judged), **lost})
        lists = mean_lists(judged.values(), weights, self._tell_once)
        means = mean_metrics(metrics, weights)
        means = {name: within(mean, metrics[name].tolist()) for name, mean in means.items()}
        return MetricRecord({**means, **lists, **lost})

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
        self._has_asked_to.add(message_type)
        self._sent = {
            k: Message(addressed(own.get(k, content), k, sites), node, message_type, group_id=self.group)
            for k, node in self._asked.items()
        }
        return list(self._sent.values())

    def _listen(self, answered: Mapping[int, Message]) -> None:
        """Take from the replies to a round's messages, by partition, what they say of their nodes."""

    def _answers(self, message_type: str, replies: Iterable[Message]) -> dict[int, Message]:
        """Return the replies to what was sent; where nothing ever was, as in a unit test, all, in order."""
        if message_type in self._has_asked_to:
            return answers(self._sent, replies)
        self._sent = dict(enumerate(replies))
        return dict(self._sent)

    def _tell_once(self, line: str) -> None:
        """Log a line, the first time; of those that nodes decide, a hundred at most."""
        if line not in self._told_lines and len(self._told_lines) < 100:
            self._told_lines.add(line)
            logger.warning("%s", line)

    def _aggregate(self, name: str, replies: dict[int, Message]) -> dict[str, Any]:
        """Return what the user's function of this name makes of sound replies."""
        metrics = getattr(self, name)([reply.content for reply in replies.values()], self.examples_key)
        if not isinstance(metrics, MetricRecord):
            raise TypeError(f"{name} gave a {type(metrics).__name__}, expected a MetricRecord")
        return dict(metrics)

    def _participation_state(self) -> dict[str, Any]:
        """Return what the next round depends on of this round's participation."""
        roster = self._roster
        kept: dict[str, Any] = {"sites": dict(roster.sites), "contributions": roster.ledger.state_dict()}
        if self.is_guarded:
            kept |= {"monitor": self._monitor.state_dict(), "recovery": self._recovery.state_dict()}
        return {"failed_rounds": self._failed_rounds, **kept}

    def _load_participation_state(self, state: dict[str, Any]) -> None:
        self._failed_rounds = state["failed_rounds"]
        self._roster.sites.update(state["sites"])
        self._roster.ledger.load_state_dict(state["contributions"])
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
        self._advice = LOWER_RATE if has_lost_the_nodes(answered) else LOOK_AT_NODES
        self._roster.recheck({answered[k].metadata.src_node_id for k in faults if k in answered})
        for k, reason in faults.items():
            logger.warning("round %d: %s left out: %s", server_round, self._roster.display_name(k), reason)

    def _fail(self, server_round: int, lack: NoStep, faults: dict[int, str]) -> None:
        """Count a round without a step; end the run after too many in a row."""
        self._failed_rounds += 1
        logger.warning("round %d: %s: the model stays as it was", server_round, lack)
        reasons = "; ".join(f"{self._roster.display_name(p)} {r}" for p, r in list(faults.items())[:3])
        self._last_failure = f"{lack} (left out in the last round: {reasons or 'none'}); {self._advice}"
        if self._failed_rounds >= self.max_failed_rounds:
            raise TooManyFailedRounds(f"{self._failed_rounds} rounds in a row failed: {self._last_failure}")


# Attendance: nodes that are chosen for a round and do not come, as phones do that lose their network.
#
# Whether a node comes is drawn anew for each round from the seed, the round and its partition, so that it
# is
# the same on every runtime and under every strategy. Nodes that come and do less: see
# :mod:`clients.training`, which goes by the same draw.


@dataclass(kw_only=True, eq=False)
class Attendance(Participation):
    """Participation of nodes that drop out.

    Parameters
    ----------
    dropout : the probability that a node that was chosen does not take part; it is not asked, and no
        failure. 0: all that are chosen are asked. A round in which too few are left, or one is away whose
        reply is needed, takes no step, and does not count as failed
    """

    dropout: float = 0.0
    _dropped: int = field(default=0, init=False, repr=False)  # of those chosen in this round
    _passed_over: int = field(default=0, init=False, repr=False)  # of a group: K others were chosen

    def __post_init__(self) -> None:
        """Refuse what is no probability, and 1: nobody would ever take part."""
        super().__post_init__()
        require(0 <= self.dropout < 1, "participation.dropout", self.dropout, "in [0, 1)")

    def ask(self, grid: Grid, server_round: int) -> dict[int, int]:
        """Return the nodes that take part in a round, as {partition id: node id}."""
        nodes = self.available(grid)
        shared = self.group and (self.nodes_per_round or self.fraction_train is not None)
        population = self._roster.available(grid, 1) if shared else nodes
        chosen = [k for k in self.choose(list(population), server_round) if k in nodes]
        here = [k for k in chosen if not self._stays_away(server_round, k)]
        self._dropped = len(chosen) - len(here)
        self._passed_over = len(nodes) - len(chosen) if shared else 0
        return {k: nodes[k] for k in here}

    def _stays_away(self, server_round: int, partition_id: int) -> bool:
        if self.dropout == 0:
            return False
        place = {"server_round": server_round, "partition_id": partition_id}
        return generator(self.seed, Purpose.AVAILABILITY, **place).random() < self.dropout

    def dropped(self) -> dict[str, float]:
        """Return what a round's metrics show of it; nothing where nobody can drop out."""
        return {protocol.DROPPED: self._dropped} if self.dropout else {}

    def _fail(self, server_round: int, lack: NoStep, faults: dict[int, str]) -> None:
        """Count a round without a step, unless it has none only because of nodes that were not asked."""
        if (self._dropped or self._passed_over) and not faults and isinstance(lack, Lacking):
            if self._dropped:
                said = "round %d: %d nodes dropped out (%s): the model stays as it was"
                logger.info(said, server_round, self._dropped, lack)
            return
        super()._fail(server_round, lack, faults)


# Keeping: nodes that keep something between rounds, and whether they still have it.
#
# A node's variate, private layers, own model or moments lie in the memory of its process. One that is
# restarted begins without them, and trains on as if the run had just begun; nothing else would tell.


LOST = "round %d: %s has lost what it kept between rounds (it was restarted?)"


@dataclass(kw_only=True, eq=False)
class Keeping(Attendance):
    """Attendance of nodes of which one that has lost what it kept is named in the log."""

    _keepers: set[int] = field(default_factory=set, init=False, repr=False)  # keep something, by partition

    def _note(
        self, server_round: int, updates: Updates, faults: dict[int, str], answered: dict[int, Message]
    ) -> None:
        super()._note(server_round, updates, faults, answered)
        told = {k: said(answered[k], protocol.KEPT) for k in updates.partition_ids}
        for k in sorted(k for k in self._keepers if told.get(k) is False):
            logger.warning(LOST, server_round, self._roster.display_name(k))
        self._keepers |= {k for k, kept in told.items() if kept is not None}


# Compressing: nodes send their updates in fewer bytes, where the strategy asks for it.


@dataclass(kw_only=True, eq=False)
class Compressing(Keeping):
    """Attendance of nodes that may compress what they send.

    Parameters
    ----------
    compression : of each node's update (:mod:`strategies.shared.compression`)
    """

    compression: Compression = NoCompression()

    @property
    def nodes_remember(self) -> bool:
        """Where error feedback does."""
        return self.compression.error_feedback

    def unproved(self) -> str:
        """Name what nodes are asked to do and no reply shows; empty for nothing."""
        compressed = not isinstance(self.compression, NoCompression)
        return f"compression={type(self.compression).__name__}" if compressed else ""

    def train_config(self) -> dict[str, ConfigScalar]:
        return super().train_config() | self.compression.train_config()


# Freezing: what no node trains travels to each node once, and is no part of the update rule.
#
# The node's half is :mod:`clients.frozen`. Frozen parameters are in the models that the strategy returns,
# and
# so in what is evaluated, saved and resumed. A node is sent them until it answers with their hash, and
# again
# after a failure, or where another process holds the partition. A node of another ClientApp never answers
# so,
# and is sent whole models.


@dataclass(kw_only=True, eq=False)
class Freezing(Compressing):
    """Attendance of nodes that keep the model's frozen parameters.

    Parameters
    ----------
    frozen_names : names of arrays that no node changes
    """

    frozen_names: tuple[str, ...] = field(default=(), repr=False)

    _layout: Layout | None = field(default=None, init=False, repr=False)

    def freeze(self, names: Iterable[str]) -> None:
        self.frozen_names = tuple(dict.fromkeys((*self.frozen_names, *names)))

    def require_frozen(self, arrays: ArrayRecord) -> None:
        """Raise ``ValueError`` for names that the model does not have."""
        if isinstance(self.frozen_names, str):  # whose letters would be names
            raise ValueError(f"frozen_names={self.frozen_names!r}: expected a tuple of names")
        if unknown := [name for name in self.frozen_names if name not in arrays]:
            raise ValueError(f"frozen_names: the model has no {unknown[0]!r}")

    def _messages(
        self, content: RecordDict, message_type: str, others: Mapping[int, RecordDict] | None = None
    ) -> list[Message]:
        """Leave frozen parameters out of the messages to the nodes that have them."""
        layout = self._layout
        if layout is None or not layout.frozen:
            return super()._messages(content, message_type, others)
        arrays, config = content.array_records[protocol.ARRAYS], content.config_records[protocol.CONFIG]
        told = ConfigRecord({**config, protocol.FROZEN: layout.frozen_hash})
        rest = without(arrays, layout.frozen)
        trained = RecordDict({**content, protocol.ARRAYS: rest, protocol.CONFIG: told})
        told = ConfigRecord({**told, protocol.FROZEN_NAMES: list(layout.frozen)})
        whole = RecordDict({**content, protocol.CONFIG: told})
        lacking = [k for k, node in self._asked.items() if not self._has_frozen(k, node)]
        return super()._messages(trained, message_type, dict.fromkeys(lacking, whole))

    def _has_frozen(self, partition_id: int, node: int) -> bool:
        holder, known = self._roster.frozen_at.get(partition_id, (None, ""))
        assert self._layout is not None
        return known == self._layout.frozen_hash and holder in (None, node)

    def _listen(self, answered: Mapping[int, Message]) -> None:
        """Note which of the nodes that were asked have the frozen parameters."""
        super()._listen(answered)
        if self._layout is None or not self._layout.frozen:
            return
        expected, holders = self._layout.frozen_hash, self._roster.frozen_at
        for k, message in self._sent.items():
            reply = answered.get(k)
            if reply is not None and reply.has_content() and said(reply, protocol.FROZEN) == expected:
                holders[k] = message.metadata.dst_node_id, expected
            else:
                holders.pop(k, None)

    def _participation_state(self) -> dict[str, Any]:
        known = {k: digest for k, (_, digest) in self._roster.frozen_at.items()}
        return super()._participation_state() | ({"frozen_at": known} if self.frozen_names else {})

    def _load_participation_state(self, state: dict[str, Any]) -> None:
        super()._load_participation_state(state)
        if (known := state.get("frozen_at")) is None:  # of a strategy whose vectors have everything
            self.frozen_names = ()
            return
        self._roster.frozen_at.update({k: (None, digest) for k, digest in known.items()})
