"""Asynchronous rounds, in virtual or in real time: the server steps when enough updates have arrived.

At most C = ``nodes_per_round`` nodes work at once, each from the model that it was sent. A round is one
server step, from time T[t-1] to T[t]:

    start     idle nodes, drawn by seed and round until C are at work, are sent w[t] at T[t-1]
    arrive    in order of time; of two that come at once the lower partition first
    step      with the first K = ``buffer_size`` updates, at the K-th arrival, which is T[t]
    wait      later updates stay in a queue, with tau: the steps since their node was sent a model

With a ``clock`` (:mod:`.clock`) nodes are simulated. Which updates make a step, in which order, and all times
then follow from the seed alone: the same on every runtime, and after a resume. A node is trained when it is
sent its model, since nothing that happens later changes its reply; the reply waits here until its virtual
arrival. So bytes are counted in the round in which a node begins.

Without one the time is that of real nodes, as behind a SuperLink: replies count in the order in which they
come, which no seed decides, and no two runs are equal. A round is given those that have come since the last
(:attr:`~.AsynchronousStrategy.has_enough`), in that order, and an error for each message that nobody waits for
any more: its node is idle again. Nodes at work evaluate after the last round alone, for they answer one message
after another. A run that is resumed sends idle nodes a model anew: what was under way is lost.

Deviation from methods that start another node at once when one has replied: here it starts at the next
step. With K = 1, as in FedAsync, these are the same. Reduction: K = C is the synchronous method, as nobody is
at work any more when a step is taken.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from strategies.parts.layout import Layout
from strategies.parts.privacy import NoPrivacy
from strategies.parts.staleness import PolynomialStaleness, Staleness
from strategies.parts.updates import MissingReplies, NoStep, Updates
from strategies.parts.weighting import Uniform, Weighting
from strategies.shared import protocol
from strategies.shared.checks import require, require_count

from .client_registry import sample_partitions
from .clock import ConstantClock, VirtualClock
from .pseudo_gradient import PseudoGradientStrategy
from .replies import SoundReplies, metrics_of, scalar_metrics
from .strategy import HasEnoughReplies

ARRIVALS_ERROR = (
    "{name} with clock=None takes replies as they arrive, and a {grid} waits for all: give it a clock, or a grid "
    "with receive_arrivals (baselines.grids.superlink.PollingGrid)"
)


@dataclass(frozen=True)
class NodeAtWork:
    """What a node was sent that has not answered yet.

    Parameters
    ----------
    started : the round in which it was sent
    message : what it was sent
    start : [P], the parameters in it
    """

    started: int
    message: Message
    start: Tensor


@dataclass(frozen=True)
class WaitingUpdate:
    """An update between its node's start and the server's step.

    Parameters
    ----------
    arrival : when it arrives, in virtual seconds; of real nodes, its number in the order of arrival
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
    """The server steps with the first updates that arrive; a subclass says how stale ones count.

    Parameters
    ----------
    nodes_per_round : C, how many nodes are at work at once; None: all
    buffer_size : K, how many updates make a step, at most C
    clock : how long nodes take; its ``deadline`` and ``keep_first`` must be None. None: as long as they
        really take, on a grid with ``receive_arrivals``
    staleness : s(tau), the factor of an update that is tau steps old
    """

    is_asynchronous: ClassVar[bool] = True
    weighting: Weighting = Uniform()
    buffer_size: int = 1
    clock: VirtualClock | None = field(default_factory=ConstantClock)
    staleness: Staleness = field(default_factory=PolynomialStaleness)

    _now: float = field(default=0.0, init=False, repr=False)  # T[t], as arrivals are counted
    _at_work: dict[int, NodeAtWork] = field(default_factory=dict, init=False, repr=False)  # by partition
    _waiting: dict[int, WaitingUpdate] = field(default_factory=dict, init=False, repr=False)  # the same
    _num_rounds: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse a buffer that can never be full, and what acts on synchronous rounds."""
        super().__post_init__()
        require_count("strategy.buffer_size", self.buffer_size)
        size, most = self.buffer_size, self.max_nodes_in_round
        limit = f"at most nodes_per_round={most}, the nodes at work at once"
        require(most is None or size <= most, "strategy.buffer_size", size, limit)
        limit = f"at most strategy.buffer_size={size}, the updates of a step"
        require(self.min_replies <= size, "min_replies", self.min_replies, limit)
        why = f"null under strategy={self.name}, whose server waits for no round"
        require(isinstance(self.clock, VirtualClock | None), "clock", self.clock, "a VirtualClock, or null")
        for name in ("deadline", "keep_first"):
            value = getattr(self.clock, name, None)
            require(value is None, f"clock.{name}", value, why)
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
    def keep_update(self, delta: Tensor, start: Tensor) -> Tensor:
        """Return what to keep of an update [P] until the step; ``start`` [P] is what its node was sent."""

    @abstractmethod
    def age_updates(self, vectors: Tensor, factors: Tensor) -> Tensor:
        """Return the pseudo-gradients [K, P] of this step, from what was kept and s(tau) [K, 1]."""

    def age_buffers(self, buffers: Tensor, factors: Tensor) -> Tensor:
        """Return the buffers [K, B] to be averaged, from the nodes' and s(tau) [K, 1]."""
        return buffers

    # ---- a round -------------------------------------------------------------------------------

    @property
    def has_enough(self) -> HasEnoughReplies | None:
        return None if self.clock is not None else self._is_filled_by

    def _is_filled_by(self, replies: Sequence[Message]) -> bool:
        """Say whether the sound ones among a round's replies so far fill the buffer."""
        if (missing := self.buffer_size - len(self._waiting)) > 0 and self.layout is not None:
            sound = self._stack_replies(
                self._match_replies(MessageType.TRAIN, replies), self.layout
            ).replies
            return len(sound) >= missing
        return True

    def set_num_rounds(self, rounds: int) -> None:
        super().set_num_rounds(rounds)
        self._num_rounds = rounds

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send idle nodes the model w[t].

        Raises
        ------
        ValueError : without a clock, on a grid that would wait for all replies
        """
        if self.clock is None and not hasattr(grid, "receive_arrivals"):
            raise ValueError(ARRIVALS_ERROR.format(name=self.name, grid=type(grid).__name__))
        if self.clock is not None:
            self._at_work = {}  # who has not answered in its round never will
        messages = super().configure_train(server_round, arrays, config, grid)
        start = self.parameters
        if self.clock is None:
            start = start.clone()  # a step writes over w[t]
        self._at_work |= {k: NodeAtWork(server_round, sent, start) for k, sent in self._sent.items()}
        return messages

    def choose(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the idle partitions that start, until as many nodes are at work as a round has."""
        idle = [k for k in partition_ids if k not in self._waiting and k not in self._at_work]
        at_work = len(partition_ids) - len(idle)
        count = max(0, self.count_in_round(len(partition_ids)) - at_work)
        return sample_partitions(idle, count, self.seed, server_round) if count else []

    def choose_evaluators(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the judges that are not at work; after the last round, all of them."""
        judges = super().choose_evaluators(partition_ids, server_round)
        is_last = server_round == self._num_rounds
        return [k for k in judges if is_last or k not in self._at_work]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord]:
        """Take the step to w[t+1] at the K-th arrival."""
        before = self._now
        arrays, metrics = super().aggregate_train(server_round, replies)
        if self.clock is not None:
            metrics[protocol.VIRTUAL_SECONDS] = self._now - before
        return arrays, metrics

    def _match_replies(self, message_type: str, replies: Iterable[Message]) -> dict[int, Message]:
        """Return the replies to what nodes at work were sent, also in earlier rounds, as they have come."""
        if message_type != MessageType.TRAIN:
            return super()._match_replies(message_type, replies)
        self._sent = {k: node.message for k, node in self._at_work.items()}
        answered = super()._match_replies(message_type, replies)
        if self.clock is None:  # the others go on
            self._sent = {k: self._sent[k] for k in answered}
        return answered

    def start_of(self, reply: Message) -> Tensor:
        if self.clock is not None:
            return self.parameters
        by_message = {node.message.metadata.message_id: node for node in self._at_work.values()}
        return by_message[reply.metadata.reply_to_message_id].start

    def _collect_replies(
        self, server_round: int, answered: Mapping[int, Message], layout: Layout
    ) -> SoundReplies:
        """Let the round's replies wait for their arrival; return the first K of all that wait."""
        collected = super()._collect_replies(server_round, answered, layout)
        updates = collected.updates
        arrivals = self._arrivals({k: collected.replies[k] for k in answered if k in collected.replies})
        for row, (k, reply) in enumerate(collected.replies.items()):
            node = self._at_work[k]
            vector = self.keep_update(updates.deltas[row], node.start).clone()
            update = (vector, updates.buffers[row].clone(), dict(metrics_of(reply)))
            self._waiting[k] = WaitingUpdate(arrivals[k], node.started, *update)
        self._at_work = {k: node for k, node in self._at_work.items() if k not in self._sent}
        in_order = sorted(self._waiting, key=lambda k: (self._waiting[k].arrival, k))
        first = {k: self._waiting[k] for k in sorted(in_order[: self.buffer_size])}
        if len(first) == self.buffer_size:
            self._now = first[in_order[self.buffer_size - 1]].arrival
            self._waiting = {k: self._waiting[k] for k in in_order[self.buffer_size :]}
        return self._stack(server_round, first, collected, layout)

    def _arrivals(self, replies: Mapping[int, Message]) -> dict[int, float]:
        """Return when each reply arrives, by partition; those of real nodes are in their order."""
        if self.clock is None:
            last = max([self._now, *(update.arrival for update in self._waiting.values())])
            return {k: last + place for place, k in enumerate(replies, start=1)}
        return {
            k: self.clock.arrival(self.seed, k, self._now, self._sent[k], reply)
            for k, reply in replies.items()
        }

    def _stack(
        self, server_round: int, arrived: dict[int, WaitingUpdate], collected: SoundReplies, layout: Layout
    ) -> SoundReplies:
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
        return SoundReplies(updates, None, collected.faults, moved, replies, collected.missing_metrics)

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        if (count := len(updates.partition_ids)) < self.buffer_size:
            raise MissingReplies(
                f"{count} updates wait for a step, strategy.buffer_size={self.buffer_size}"
            )
        return super().take_step(server_round, updates)

    def _count_failed_round(
        self, server_round: int, lack: NoStep, faults: dict[int, str], answered: Mapping[int, Message]
    ) -> None:
        """Count a round without a step, unless nodes are at work: theirs may be sound."""
        if not self._at_work:
            super()._count_failed_round(server_round, lack, faults, answered)

    def _roll_back(self, server_round: int) -> ArrayRecord | None:
        """Return to the last good model, unless nodes are at work: most of all nodes must find a model bad."""
        return None if self._at_work else super()._roll_back(server_round)

    # ---- saved and resumed ---------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        waiting = {k: dict(vars(update)) for k, update in self._waiting.items()}
        return super().state_dict() | {"now": self._now, "waiting": waiting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._now = state["now"]
        self._waiting = {k: WaitingUpdate(**update) for k, update in state["waiting"].items()}
