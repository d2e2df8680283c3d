"""Asynchronous rounds, simulated in virtual time: the server steps when enough updates have arrived.

At most C = ``nodes_per_round`` nodes work at once, each from the model that it was sent. A round is one
server step, from time T[t-1] to T[t]:

    start     idle nodes, drawn by seed and round until C are at work, are sent w[t] at T[t-1]
    arrive    in order of virtual time (:mod:`.clock`); of two that come at once the lower partition first
    step      with the first K = ``buffer_size`` updates, at the K-th arrival, which is T[t]
    wait      later updates stay in the buffer's queue, with their tau: the steps since they were sent a model

Which updates make a step, in which order, and all times follow from the seed alone: the same on every
runtime, and after a resume. A node is trained when it is sent its model, since nothing that happens later
changes its reply; the reply waits here until its virtual arrival. So bytes are counted in the round in which
a node begins.

Deviation from methods that start another node at once when one has replied: here it starts at the next
step. With K = 1, as in FedAsync, these are the same. Reduction: K = C is the synchronous method, as nobody is
at work any more when a step is taken.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from flwr.app import ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from torch import Tensor

from strategies.parts.layout import Layout
from strategies.parts.privacy import NoPrivacy
from strategies.parts.staleness import PolynomialStaleness, Staleness
from strategies.parts.updates import Lacking, Updates
from strategies.parts.weighting import Uniform, Weighting
from strategies.shared import protocol
from strategies.shared.checks import require, require_count

from .client_registry import sample
from .clock import ConstantClock, VirtualClock
from .pseudo_gradient import PseudoGradientStrategy
from .replies import metrics_of, scalar_metrics
from .stacking import Collected


@dataclass(frozen=True)
class WaitingUpdate:
    """An update between its node's start and the server's step.

    Parameters
    ----------
    arrival : when it arrives, in virtual seconds
    started : the round in which its node was sent the model
    vector : [P], what the strategy keeps of it (:meth:`AsynchronousStrategy.keep_update`)
    buffers : [B], in float64
    metrics : as the node sent them
    """

    arrival: float
    started: int
    vector: Tensor
    buffers: Tensor
    metrics: dict[str, Any]


@dataclass(kw_only=True, eq=False)
class AsynchronousStrategy(PseudoGradientStrategy):
    """The server steps with the first updates that arrive; a subclass says what a stale one counts.

    Parameters
    ----------
    nodes_per_round : C, how many nodes are at work at once; None: all
    buffer_size : K, how many updates make a step, at most C
    clock : how long nodes take; its deadline and ``keep_first`` are those of synchronous rounds
    staleness : s(tau), the factor of an update that is tau steps old
    """

    keeps_time: ClassVar[bool] = True
    weighting: Weighting = Uniform()
    buffer_size: int = 1
    clock: VirtualClock = field(default_factory=ConstantClock)
    staleness: Staleness = field(default_factory=PolynomialStaleness)

    _now: float = field(default=0.0, init=False, repr=False)  # T[t], virtual seconds
    _waiting: dict[int, WaitingUpdate] = field(default_factory=dict, init=False, repr=False)  # by partition

    def __post_init__(self) -> None:
        """Refuse a buffer that can never be full, and what acts on synchronous rounds."""
        super().__post_init__()
        require_count("strategy.buffer_size", self.buffer_size)
        size, most = self.buffer_size, self.most_in_round
        limit = f"at most nodes_per_round={most}, the nodes at work at once"
        require(most is None or size <= most, "strategy.buffer_size", size, limit)
        limit = f"at most strategy.buffer_size={size}, the updates of a step"
        require(self.min_replies <= size, "min_replies", self.min_replies, limit)
        why = f"null under strategy={self.name}, whose server waits for no round"
        for name in ("deadline", "keep_first"):
            require(getattr(self.clock, name) is None, f"clock.{name}", getattr(self.clock, name), why)
        why = f"none under strategy={self.name}: what is spent is counted by synchronous rounds"
        require(type(self.privacy) is NoPrivacy, "privacy", type(self.privacy).__name__, why)
        why = f"null under strategy={self.name}, whose updates are of several rounds"
        require(self.max_norm is None, "participation.max_norm", self.max_norm, why)

    def for_group(self, name: str, members: tuple[int, ...]) -> Self:
        raise ValueError(
            f"strategy.inner={self.name} has a clock of its own, but groups share a round: choose another "
            "inner strategy"
        )

    # ---- what a method says --------------------------------------------------------------------

    @abstractmethod
    def keep_update(self, deltas: Tensor) -> Tensor:
        """Return what to keep of updates [K, P] = w[t] - w[t,k] until they arrive; w[t] is what nodes were sent."""

    @abstractmethod
    def age_updates(self, vectors: Tensor, factors: Tensor) -> Tensor:
        """Return the pseudo-gradients [K, P] of this step, of what was kept and s(tau) [K, 1]."""

    def age_buffers(self, buffers: Tensor, factors: Tensor) -> Tensor:
        """Return the model's buffers [K, B] to be averaged, of the nodes' and s(tau) [K, 1]."""
        return buffers

    # ---- a round -------------------------------------------------------------------------------

    def choose(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the idle partitions that start: as many as bring those at work to the nodes of a round."""
        idle = [k for k in partition_ids if k not in self._waiting]
        at_work = len(partition_ids) - len(idle)
        count = max(0, self.count_in_round(len(partition_ids)) - at_work)
        return sample(idle, count, self.seed, server_round) if count else []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord]:
        """Take the step to w[t+1] at the K-th arrival."""
        before = self._now
        arrays, metrics = super().aggregate_train(server_round, replies)
        metrics[protocol.VIRTUAL_SECONDS] = self._now - before
        return arrays, metrics

    def _collect(self, server_round: int, answered: Mapping[int, Message], layout: Layout) -> Collected:
        """Let the round's replies wait for their arrival; return the first K of all that wait."""
        collected = super()._collect(server_round, answered, layout)
        updates = collected.updates
        vectors = self.keep_update(updates.deltas)
        for row, (k, reply) in enumerate(collected.replies.items()):
            arrival = self.clock.arrival(self.seed, k, self._now, self._sent[k], reply)
            kept = (vectors[row].clone(), updates.buffers[row].clone(), dict(metrics_of(reply)))
            self._waiting[k] = WaitingUpdate(arrival, server_round, *kept)
        in_order = sorted(self._waiting, key=lambda k: (self._waiting[k].arrival, k))
        first = {k: self._waiting[k] for k in sorted(in_order[: self.buffer_size])}
        if len(first) == self.buffer_size:
            self._now = first[in_order[self.buffer_size - 1]].arrival
            self._waiting = {k: self._waiting[k] for k in in_order[self.buffer_size :]}
        return self._stack(server_round, first, collected, layout)

    def _stack(
        self, server_round: int, arrived: dict[int, WaitingUpdate], collected: Collected, layout: Layout
    ) -> Collected:
        """Return the updates that have arrived as those of the round, with its faults."""
        ages = {k: server_round - update.started for k, update in arrived.items()}
        records = {
            k: RecordDict({protocol.METRICS: MetricRecord({**update.metrics, protocol.STALENESS: ages[k]})})
            for k, update in arrived.items()
        }
        replies = {k: Message(record, k, MessageType.TRAIN) for k, record in records.items()}
        metrics = scalar_metrics(replies.values(), self._log_once)
        like, waiting = self.parameters, arrived.values()
        vectors = torch.stack([update.vector.to(like) for update in waiting]) if arrived else like[None][:0]
        buffers = torch.stack([update.buffers for update in waiting]) if arrived else self.buffers[None][:0]
        factors = self.staleness(torch.tensor([*ages.values()], dtype=torch.float64))[:, None]
        updates = Updates(
            self.age_updates(vectors, factors.to(like)),
            self.age_buffers(buffers, factors),
            metrics.pop(self.examples_key, torch.zeros(0, dtype=torch.float64)),
            tuple(arrived),
            layout,
            like,
            metrics,
        )
        moved = bool(updates.deltas.any())
        return Collected(updates, None, collected.faults, moved, replies, collected.lacking)

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        if (count := len(updates.partition_ids)) < self.buffer_size:
            raise Lacking(f"{count} updates wait for a step, strategy.buffer_size={self.buffer_size}")
        return super().take_step(server_round, updates)

    # ---- saved and resumed ---------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        waiting = {k: dict(vars(update)) for k, update in self._waiting.items()}
        return super().state_dict() | {"now": self._now, "waiting": waiting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._now = state["now"]
        self._waiting = {k: WaitingUpdate(**update) for k, update in state["waiting"].items()}
