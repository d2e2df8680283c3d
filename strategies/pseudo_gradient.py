"""One round of every method in this package, hook by hook. Read this file first.

    w[t+1] = w[t] - eta[t] * m[t] * P( sum_k alpha[t,k] Delta[t,k] ),    Delta[t,k] = w[t] - w[t,k]

Delta[t,k], node k's *pseudo-gradient*, is computed here from the plain weights w[t,k] that any stock
Flower client returns. The four letters are four exchangeable parts: alpha is the ``weighting``, P the
``server_optimizer``, m the ``mask`` and eta the ``step_size``. A method names its part and leaves the
others open: FedExP is an extrapolated step size, FedAvg is none of them.

Buffers (integer arrays, running statistics) are averaged with the same weights, never masked and never
optimised.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, ConfigScalar, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from .parts.layout import BUFFER_NAMES, Layout
from .parts.mask import Mask, NoMask
from .parts.server_optimizer import Identity, ServerOptimizer, copied
from .parts.step_size import Constant, StepSize
from .parts.updates import Updates
from .parts.weighting import ByExamples, Weighting
from .round.buffers import Buffers
from .round.failures import NoStep
from .round.iterates import Iterates
from .round.movement import Movement
from .round.participation import Participation
from .round.replies import answers, mean_metrics
from .round.stacking import Collected, Stack
from .round.weighing import weigh
from .shared import protocol
from .shared.checks import require_count


@dataclass(kw_only=True, eq=False)
class PseudoGradientStrategy(Participation):
    """A Flower strategy made of four parts.

    Parameters
    ----------
    weighting, server_optimizer, mask, step_size : the four parts
    average_last : evaluate the mean of the last n iterates (fewer while fewer exist); training goes on
        from the last. 1 evaluates the last iterate itself
    buffer_names : names, or ends of names, of floating-point arrays that are buffers

    The others say who takes part: see :class:`~strategies.round.participation.Participation`.
    """

    weighting: Weighting = ByExamples()
    server_optimizer: ServerOptimizer = Identity()
    mask: Mask = NoMask()
    step_size: StepSize = Constant()
    average_last: int = 1
    buffer_names: tuple[str, ...] = BUFFER_NAMES

    _layout: Layout | None = field(default=None, init=False, repr=False)
    _parameters: Tensor = field(init=False, repr=False)  # w[t], as sent to the nodes
    _buffers: Tensor = field(init=False, repr=False)
    _iterates: Iterates = field(init=False, repr=False)
    _weighting_state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    _optimizer_state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    _movement: Movement = field(default_factory=Movement, init=False, repr=False)
    _scratch: Buffers = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse counts out of range, in one line each."""
        super().__post_init__()
        require_count("average_last", self.average_last)
        if self.num_nodes is not None:
            self.mask.require_nodes(self.nodes_per_round or self.num_nodes)
            self.weighting.require_nodes(self.num_nodes)
        self._iterates = Iterates(self.average_last)
        self._scratch = Buffers(keeps_parameters=self.average_last > 1)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the round's nodes and send each of them the model w[t]."""
        self._start_from(arrays)
        available = self.available(grid)
        chosen = self.choose(list(available), server_round)
        self._asked = {partition_id: available[partition_id] for partition_id in chosen}
        return self._messages(self._content(server_round, arrays, config), MessageType.TRAIN)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord]:
        """Take the step from w[t] to w[t+1]; None when too few replies are sound.

        Raises
        ------
        TooManyFailedRounds : when that happens ``max_failed_rounds`` times in a row
        """
        assert self._layout is not None, "configure_train comes before aggregate_train"
        collected = self._collect(server_round, replies, self._layout)
        updates = collected.updates
        metrics = collected.counts()
        try:
            metrics[protocol.STEP_SIZE], weights = self._step(server_round, updates)
        except NoStep as reason:
            self._fail(server_round, str(reason), collected.faults)
            return None, MetricRecord(dict(metrics))
        self._failed_rounds = 0
        self._movement.note(server_round, collected.moved, updates.metrics.get(protocol.LEARNING_RATE))
        of_nodes = mean_metrics(updates.metrics, updates.num_examples)
        metrics |= {name: value for name, value in of_nodes.items() if name not in metrics}
        metrics |= self.weighting.metrics(updates, weights, self._weighting_state)
        if collected.extra is not None:
            self._absorb(server_round, updates.partition_ids, collected.extra)
        self._iterates.add(self._parameters, self._buffers)
        return self._layout.record(self._parameters, self._buffers), MetricRecord(dict(metrics))

    def _collect(self, server_round: int, replies: Iterable[Message], layout: Layout) -> Collected:
        """Check and stack what the nodes that were asked have sent."""
        extra, needed = self.extra_record, self.weighting.asks_for
        stack = Stack(layout, self._parameters, self._scratch, len(self._sent), extra, needed)
        answered = answers(self._sent, replies)
        for partition_id in sorted(self._sent):
            stack.read(partition_id, answered.get(partition_id))
        collected = stack.collected()
        self._name_faults(server_round, collected.faults)
        return collected

    def _step(self, server_round: int, updates: Updates) -> tuple[float, Tensor]:
        """Apply the update rule; return eta[t] and the weights alpha[t], or raise ``NoStep``."""
        weights, state = weigh(self.weighting, updates, self._weighting_state, self.min_replies)
        mean, factors = self.mask.with_mean(updates, weights, self._scratch.pair)
        eta = self.step_size(server_round, updates, weights, mean)
        if not math.isfinite(eta):
            raise NoStep(f"step_size={type(self.step_size).__name__} gave {eta}")
        self._weighting_state = state
        direction, self._optimizer_state = self.server_optimizer(mean, self._optimizer_state)
        self._scratch.free = None if self.server_optimizer.keeps_mean else mean
        self._parameters = self._scratch.moved(self._parameters, direction, factors, eta)
        self._buffers = updates.mean_buffers(weights)
        return eta, weights

    def models(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """Return the models to evaluate, by name: the last iterate, or the mean of the last n."""
        if self.average_last == 1:
            return {"global": arrays}
        if not self._iterates.kept:
            return {"average": arrays}  # before the first round there is one iterate
        return {"average": self._iterates.mean(self._layout or self.check(arrays))}

    def check(self, arrays: ArrayRecord) -> Layout:
        """Return the model's layout; raise ``ValueError`` for a model that a part cannot work with."""
        layout = Layout.of(arrays, self.buffer_names)
        self.weighting.check(layout)
        return layout

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next round depends on, the current arrays aside."""
        return {
            "weighting": self._weighting_state,
            "server_optimizer": copied(self._optimizer_state),
            "iterates": list(self._iterates.kept),
            "failed_rounds": self._failed_rounds,
            "movement": self._movement.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the strategy that gave ``state`` stood, bit for bit."""
        self._weighting_state = state["weighting"]
        self._optimizer_state = copied(state["server_optimizer"])
        self._iterates.kept = list(state["iterates"])
        self._failed_rounds = state["failed_rounds"]
        self._movement.load_state_dict(state.get("movement"))

    def asks(self) -> dict[str, ConfigScalar]:
        return {self.weighting.asks_for: True} if self.weighting.asks_for else {}

    extra_record: ClassVar[str | None] = None  # a further ArrayRecord that every reply must carry

    def _content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        """Return what every node of the round is sent; a subclass adds its own."""
        asked = ConfigRecord({**config, **self.asks(), protocol.SERVER_ROUND: server_round})
        return RecordDict({protocol.ARRAYS: arrays, protocol.CONFIG: asked})

    def _absorb(self, server_round: int, partition_ids: Sequence[int], extra: Tensor) -> None:
        """Use the rows [K, P] of the ``extra_record``, one for each partition; the step has been taken."""

    def share(self, other: "PseudoGradientStrategy") -> None:
        """Use the roster and the scratch space of a strategy whose rounds never overlap this one's."""
        self._roster, self._scratch = other._roster, other._scratch

    def _start_from(self, arrays: ArrayRecord) -> None:
        """Take ``arrays`` as w[t]."""
        if self._layout is None:
            self._layout = self.check(arrays)
        self._parameters = self._layout.flatten_parameters(arrays)
        self._buffers = self._layout.flatten_buffers(arrays)
        if not self._iterates.kept:
            self._iterates.add(self._parameters, self._buffers)
