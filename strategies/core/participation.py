"""Choose the nodes that train and evaluate in a round, and average their evaluations.

Nodes are known by the partitions that they hold, so that a result depends on the seed and not on the
ids that a runtime gives its nodes.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from strategies.shared import protocol
from strategies.shared.checks import require, require_count
from strategies.shared.seeding import Purpose, generator

from .client_registry import ClientRegistry, count_share, sample_partitions
from .replies import (
    DivergedMetrics,
    Fault,
    LogFunction,
    cap_weights,
    check_reply,
    clamp_mean,
    find_missing_metrics,
    find_void_means,
    mean_lists,
    mean_metrics,
    num_examples_of,
    read_measures,
    scalar_metrics,
)

logger = logging.getLogger("flwr.strategies")

MIN_NODES_AT_START = 2  # to begin with, where nobody says how many there are
MAX_SITE_SHARE = 0.5  # the most that one site counts for in a mean over sites, unless max_share says


@dataclass(frozen=True)
class Sample:
    """Who trains in a round.

    Parameters
    ----------
    nodes : node ids by partition
    num_dropped : how many were chosen and drop out
    num_passed_over : how many connected nodes of a group were not chosen, or are no longer waited for
    """

    nodes: dict[int, int] = field(default_factory=dict)
    num_dropped: int = 0
    num_passed_over: int = 0

    @property
    def is_partial(self) -> bool:
        """Whether nodes are missing without a fault of theirs: a round that lacks them has not failed."""
        return self.num_dropped + self.num_passed_over > 0


@dataclass(frozen=True)
class ClientSampler:
    """Samples the nodes of a round; the parameters are :class:`~strategies.PseudoGradientStrategy`'s.

    Whether a node drops out is drawn anew for each round from the seed, the round and its partition, so
    that it is the same on every runtime and under every strategy. The same draw decides which nodes
    straggle (:mod:`clients.training`).
    """

    nodes_per_round: int | None
    fraction_train: float | None
    num_nodes: int | None
    min_replies: int
    dropout: float
    members: tuple[int, ...] | None
    is_of_group: bool
    seed: int

    def check(self) -> None:
        """Refuse counts and shares out of range, and both a count and a share of nodes that train."""
        for name in ("nodes_per_round", "num_nodes"):
            require_count(name, getattr(self, name), optional=True)
        require_count("min_replies", self.min_replies)
        require(self.seed >= 0, "seed", self.seed, "a whole number, 0 or above")
        train, count = self.fraction_train, self.nodes_per_round
        require(train is None or 0 < train <= 1, "fraction_train", train, "above 0, at most 1, or None")
        both = train is not None and count is not None
        require(not both, "fraction_train", train, f"None where nodes_per_round={count} is set")
        total, population = self._total_per_round, self.num_nodes
        if total is not None:
            valid = population is None or total <= population
            require(valid, "nodes_per_round", total, f"at most num_nodes={population}")
            require(self.min_replies <= total, "min_replies", self.min_replies, f"at most {total}")
        require(0 <= self.dropout < 1, "participation.dropout", self.dropout, "in [0, 1)")

    @property
    def _total_per_round(self) -> int | None:
        """How many nodes train in a round, of all groups; None where that is not known."""
        return self.nodes_per_round or (self.num_nodes and self.count_in_round(self.num_nodes))

    @property
    def max_nodes_in_round(self) -> int | None:
        """How many nodes a round can have, a group's members at most; None where that is not known."""
        total = self._total_per_round
        if self.members is None:
            return total
        return min(total or len(self.members), len(self.members))

    def count_in_round(self, nodes: int) -> int:
        """Return how many of the nodes train in a round."""
        if self.fraction_train is None:
            return self.nodes_per_round or nodes
        return max(count_share(nodes, self.fraction_train), self.min_replies)

    def find_nodes(self, grid: Grid, registry: ClientRegistry) -> dict[int, int]:
        """Return the nodes that are connected and take part; wait for them before the first round."""
        counts = (1,) if registry.partition_of else self._count_nodes_to_wait_for()
        nodes = registry.find_nodes(grid, *counts)
        return nodes if self.members is None else {k: nodes[k] for k in self.members if k in nodes}

    def _count_nodes_to_wait_for(self) -> tuple[int, int]:
        """Return how many nodes to wait for before the first round, and with how many to begin at least."""
        if self.num_nodes:
            return self.num_nodes, 1
        least = MIN_NODES_AT_START if self.members is None else min(MIN_NODES_AT_START, len(self.members))
        return max(self.nodes_per_round or self.min_replies, least), least

    @property
    def has_shared_round(self) -> bool:
        """Whether the nodes of a round are drawn from those of all groups."""
        return self.is_of_group and bool(self.nodes_per_round or self.fraction_train is not None)

    def draw(
        self,
        nodes: Mapping[int, int],
        population: Sequence[int],
        server_round: int,
        choose: Callable[[list[int], int], list[int]],
    ) -> Sample:
        """Draw the round's nodes from those that are ``find_nodes``.

        Parameters
        ----------
        population : the partitions to draw from: those of all groups, where these share the round
        choose : (partitions, round) -> those chosen
        """
        chosen = [k for k in choose(list(population), server_round) if k in nodes]
        here = [k for k in chosen if not self._drops_out(server_round, k)] if self.dropout else chosen
        passed_over = len(nodes) - len(chosen) if self.has_shared_round else 0
        return Sample({k: nodes[k] for k in here}, len(chosen) - len(here), passed_over)

    def _drops_out(self, server_round: int, partition_id: int) -> bool:
        place = {"server_round": server_round, "partition_id": partition_id}
        return generator(self.seed, Purpose.AVAILABILITY, **place).random() < self.dropout

    def draw_evaluators(self, partition_ids: list[int], share: float, server_round: int) -> list[int]:
        """Return who evaluates, of those that may."""
        if share == 1:
            return partition_ids
        count = count_share(len(partition_ids), share)
        return sample_partitions(partition_ids, count, self.seed, server_round, Purpose.EVALUATING_NODES)


def make_node_content(content: RecordDict, number: int, sites: Mapping[str, int]) -> RecordDict:
    """Return what a node is sent; a site has no partition of its own, and receives its number."""
    if number not in sites.values():
        return content
    config = ConfigRecord({**content.config_records[protocol.CONFIG], protocol.PARTITION_ID: number})
    return RecordDict({**content, protocol.CONFIG: config})


@dataclass(frozen=True)
class NodeEvaluation:
    """What the nodes have measured on their own test data, in one round.

    Parameters
    ----------
    sound_replies : sound replies, by partition
    diverged_replies : replies that are sound but for metrics that are no numbers, by partition
    examples_key : the metric that counts a reply's test examples
    """

    sound_replies: dict[int, Message] = field(default_factory=dict)
    diverged_replies: dict[int, Message] = field(default_factory=dict)
    examples_key: str = protocol.NUM_EXAMPLES

    @classmethod
    def from_replies(
        cls,
        server_round: int,
        sent: Mapping[int, Message],
        answered: Mapping[int, Message],
        registry: ClientRegistry,
        examples_key: str,
    ) -> "NodeEvaluation":
        """Read what the partitions that were ``sent`` a model have answered; log why others do not count."""
        sound, diverged, faults = dict[int, Message](), dict[int, Message](), dict[int, str]()
        for k in sent:
            try:
                sound[k] = check_reply(
                    answered.get(k), k if registry.has_partition_ids else None, examples_key
                )
            except Fault as fault:
                faults[k] = str(fault)
                if isinstance(fault, DivergedMetrics) and num_examples_of(answered[k], examples_key) > 0:
                    diverged[k] = answered[k]
        judged = {k: reply for k, reply in sound.items() if num_examples_of(reply, examples_key) > 0}
        faults |= find_missing_metrics(judged)
        for k, reason in faults.items():
            who = registry.display_name(k)
            logger.warning("round %d: %s did not evaluate: %s", server_round, who, reason)
        judged = {k: reply for k, reply in judged.items() if k not in faults}
        return cls(judged, diverged, examples_key)

    @property
    def num_examples(self) -> float:
        """How many test examples are behind the sound replies."""
        counts = [num_examples_of(reply, self.examples_key) for reply in self.sound_replies.values()]
        return float(torch.tensor(counts, dtype=torch.float64).sum())

    def by_site(self, sites: Mapping[str, int]) -> dict[str, dict[str, float]]:
        """Return each node's metrics, under its site's name or ``node 3``, in the partitions' order."""
        names = {number: name for name, number in sites.items()}
        return {
            names.get(k, f"node {k}"): {
                key: value for key, value in read_measures(reply).items() if key != protocol.PARTITION_ID
            }
            for k, reply in sorted((self.sound_replies | self.diverged_replies).items())
        }

    def find_void_metrics(self) -> dict[str, Any]:
        """Return the measures that are NaN in the mean; none where most nodes' are numbers."""
        if not self.diverged_replies:
            return {}
        return find_void_means(self.diverged_replies.values(), len(self.sound_replies), self.examples_key)

    def average_metrics(self, max_share: float | None, log: LogFunction) -> dict[str, Any]:
        """Return the means over the sound replies, weighted by their numbers of test examples.

        ``max_share`` is the largest share of one node; None for no limit.
        """
        metrics = scalar_metrics(self.sound_replies.values(), log)
        examples = metrics.pop(self.examples_key)
        weights = examples if max_share is None else cap_weights(examples, max_share)
        lists = mean_lists(self.sound_replies.values(), weights, log)
        means = mean_metrics(metrics, weights)
        return {name: clamp_mean(mean, metrics[name].tolist()) for name, mean in means.items()} | lists
