"""One round of every method in this package, hook by hook. Read this file first.

    w[t+1] = w[t] - eta[t] * m[t] * P( sum_k alpha[t,k] Delta[t,k] ),    Delta[t,k] = w[t] - w[t,k]

Delta[t,k], node k's *pseudo-gradient*, is computed here from the plain weights w[t,k] that any stock
Flower client returns. The letters are exchangeable parts: alpha is the ``weighting``, the sum over k the
``aggregation``, P the ``server_optimizer``, m the ``mask`` and eta the ``step_size``. A method names its
part and leaves the others open: FedExP is an extrapolated step size. A ``privacy`` noises the sum.

Buffers (integer arrays, running statistics) are aggregated alike, never masked and never optimised. Frozen
parameters are neither sent nor aggregated.
"""

import logging
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, ClassVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, ConfigScalar, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from torch import Tensor

from strategies.parts.aggregation import Aggregation, Mean
from strategies.parts.layout import BUFFER_NAMES, Layout
from strategies.parts.mask import Mask, NoMask
from strategies.parts.privacy import NoPrivacy, Privacy, refuse
from strategies.parts.server_optimizer import Identity, ServerOptimizer, beside, copied
from strategies.parts.step_size import Constant, StepSize
from strategies.parts.updates import Updates
from strategies.parts.weighting import ByExamples, State, Uniform, Weighting
from strategies.shared import protocol
from strategies.shared.checks import require_count, require_named_part, require_parts
from strategies.shared.compression import NoCompression

from .client_registry import PrivacyAccountant
from .participation import Freezing
from .replies import arrays_of, is_of_other_app, mean_lists, mean_metrics, name_unread, with_own
from .stacking import Collected, Stack, Workspace, rows
from .strategy import Lacking, NoStep, TooManyFailedRounds
from .update_monitor import StallDetector, has_lost_the_nodes

logger = logging.getLogger("flwr.strategies")


# Iterates: the last models of a strategy, whose mean is evaluated in place of the last one.


Iterate = tuple[Tensor, Tensor]  # parameters [P], buffers [B]


class IterateAverage:
    """The last ``most`` iterates, fewer while fewer exist; none where ``most`` is 1."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: list[Iterate] = []

    def add(self, parameters: Tensor, buffers: Tensor) -> None:
        """Keep one more."""
        if self.most > 1:
            self.kept = [*self.kept, (parameters, buffers)][-self.most :]

    def models(self, last: ArrayRecord, layout: Layout | None) -> dict[str, ArrayRecord]:
        """Return the model to evaluate, by name: the last iterate, or the mean of those kept."""
        if self.most == 1:
            return {"global": last}
        if not self.kept or layout is None:
            return {"average": last}  # before the first round there is one iterate
        parameters, buffers = zip(*self.kept, strict=True)
        vectors = [
            vector.to(parameters[-1].device) for vector in parameters
        ]  # a checkpoint's are elsewhere
        mean = layout.record(torch.stack(vectors).mean(0), torch.stack(buffers).mean(0))
        return {"average": mean}


# Weighing: what the parts give for a round, or why they give nothing. A user's own may give anything.


def needed_metrics(weighting: Weighting, aggregation: Aggregation) -> list[str]:
    """Return the names of the metrics without which a reply cannot be used."""
    return [*([weighting.required_metric] if weighting.required_metric else []), *aggregation.needs]


def compute_weights(
    weighting: Weighting, aggregation: Aggregation, updates: Updates, state: State, min_replies: int
) -> tuple[Tensor, State]:
    """Return the weights alpha[t], [K] or [K, L], and the weighting's next state.

    Raises
    ------
    Lacking : where the round lacks replies, or what the weighting needs
    NoStep : where the weights cannot be used
    """
    if (kept := len(updates.partition_ids)) < min_replies:
        raise Lacking(f"{kept} sound replies, min_replies={min_replies}")
    if lack := weighting.lacks(updates) or aggregation.lacks(updates):
        raise Lacking(lack)
    weights, state = _pair("weighting", weighting, weighting(updates, state))
    if fault := _fault(weights, updates):
        raise NoStep(f"weighting={type(weighting).__name__} gave {fault}")
    return aggregation.weights(updates, weights), state


def compute_step_size(
    step_size: StepSize, server_round: int, updates: Updates, weights: Tensor, mean: Tensor
) -> float:
    """Return eta[t]; raise ``NoStep`` where what the step size gave is no finite number."""
    given = step_size(server_round, updates, weights, mean)
    said = f"step_size={type(step_size).__name__} gave"
    try:
        eta = float(given)
    except (TypeError, ValueError, RuntimeError) as error:  # the last: a tensor of several
        raise NoStep(f"{said} {_named(given)}, expected a number") from error
    if not math.isfinite(eta):
        raise NoStep(f"{said} {eta}")
    return eta


def apply_optimizer(optimizer: ServerOptimizer, mean: Tensor, state: State) -> tuple[Tensor, State]:
    """Return the direction [P] and the optimizer's next state; raise ``NoStep`` where they are none."""
    shape = mean.shape
    direction, state = _pair("server_optimizer", optimizer, optimizer(mean, state))
    if not isinstance(direction, Tensor) or direction.shape != shape:
        said = f"server_optimizer={type(optimizer).__name__} gave {_named(direction)}"
        raise NoStep(f"{said}, expected a tensor of shape {tuple(shape)}")
    return direction, state


def _pair(name: str, part: object, given: tuple[Tensor, State]) -> tuple[Tensor, State]:
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise NoStep(
            f"{name}={type(part).__name__} gave {_named(given)}, expected a pair: a tensor, a state"
        )
    return given


def _named(given: object) -> str:
    if isinstance(given, Tensor):
        return f"a tensor of shape {tuple(given.shape)}"
    return "None" if given is None else f"a {type(given).__name__}"


def _fault(weights: Tensor, updates: Updates) -> str | None:
    """Say what is wrong with weights; None where they can be used."""
    nodes, layers = len(updates.partition_ids), len(updates.layout.layers)
    if not isinstance(weights, Tensor):
        return f"{_named(weights)}, expected a tensor"
    if tuple(weights.shape) not in ((nodes,), (nodes, layers)):
        return f"weights of shape {tuple(weights.shape)}, expected {(nodes,)} or {(nodes, layers)}"
    sound = weights.isfinite().view(nodes, -1).all(1)
    if not bool(sound.all()):
        row = int((~sound).nonzero()[0])
        return f"partition {updates.partition_ids[row]} a weight that is NaN or infinite"
    if (least := float(weights.sum(0).min())) <= 0:
        return f"weights that sum to {least:.3g}, expected 1"
    return None


# Wrapping: Flower's strategies of differential privacy around one of this package's.
#
# They clip the nodes' models before ``aggregate_train`` and add noise to what it returns, as much as a mean
# needs. A step that is longer, or is made of the clipped updates in another way, is not covered by it.


WRAPPERS = (
    flower.DifferentialPrivacyClientSideAdaptiveClipping,
    flower.DifferentialPrivacyClientSideFixedClipping,
    flower.DifferentialPrivacyServerSideAdaptiveClipping,
    flower.DifferentialPrivacyServerSideFixedClipping,
)


def require_covered(strategy: object, beyond: str) -> None:
    """Raise ``ValueError`` where a wrapper of Flower's calls a strategy that its noise does not cover.

    To be called in a hook of Flower's. ``beyond`` names what is more than a plain mean; empty for nothing.
    """
    wrapper = _caller(strategy) if beyond else None
    if isinstance(wrapper, WRAPPERS):
        raise ValueError(
            f"{type(wrapper).__name__} adds the noise of a mean, which does not cover {beyond} of "
            f"{type(strategy).__name__}: choose FedAvg, or privacy=CentralPrivacy(...) without the wrapper"
        )


def _caller(strategy: object) -> object:
    """Return the object whose method calls one of the strategy's; it holds no reference to it itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    while frame is not None and frame.f_locals.get("self") is strategy:
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get("self")


# Called: a part that a strategy's own step does not use has no effect, and is named in one warning.
#
# The package's update rule applies every part. A strategy of the user's own may replace it (``_step``) and
# leave some of them out, and so may an aggregation leave out the mask. The first step tells: what was
# chosen,
# and is not read while the step is taken, has no effect in any round.


# What a step reads to apply each part.
APPLIED_BY = {
    "weighting": "weighting",
    "aggregation": "aggregation",
    "server_optimizer": "server_optimizer",
    "mask": "mask",
    "step_size": "step_size",
    "privacy": "_budget",
}
UNUSED = "strategy=%s takes its step without %s: no effect; leave it out, or let _step apply it"
UNPROTECTED = (
    "privacy would not hold: the step of strategy={} neither clips the updates nor adds noise; let _step "
    "call self._budget.clip_ and self._budget.noise_, or set privacy=none"
)


class StepWatch:
    """The first step of a strategy: which of the parts that were chosen does it leave out?

    Attributes
    ----------
    is_over : whether there has been a step
    unused : names of parts that the package's own rule found to be left out
    """

    def __init__(self) -> None:
        self.is_over = False
        self.unused: set[str] = set()

    @contextmanager
    def watch(self, strategy: Any) -> Iterator[None]:
        """Watch what is called within, if it is the first step; warn of parts that were left out.

        Raises
        ------
        TooManyFailedRounds : where privacy was left out, and the run would report an epsilon
        """
        if self.is_over:
            yield
            return
        candidates = _chosen(strategy) if _has_own_step(strategy) else {}
        with _reads(strategy, is_watched=bool(candidates)) as read:
            yield
        self.is_over = True
        unused = {part for part, attribute in candidates.items() if attribute not in read} | self.unused
        if "privacy" in unused:
            raise TooManyFailedRounds(UNPROTECTED.format(strategy.name))
        if unused:
            parts = ", ".join(f"{part}={getattr(strategy, part)!r}" for part in sorted(unused))
            logger.warning(UNUSED, strategy.name, parts)


def _has_own_step(strategy: object) -> bool:
    """Say whether the step is not one of this package's, which apply all parts."""
    owner = next(kind for kind in type(strategy).__mro__ if "_step" in vars(kind))
    return not owner.__module__.startswith("strategies.")


def _chosen(strategy: Any) -> dict[str, str]:
    """Return the parts that are not the strategy's defaults, and what a step reads to apply each."""
    kind = type(strategy)
    chosen = {
        part: attribute
        for part, attribute in APPLIED_BY.items()
        if getattr(strategy, part) != getattr(kind, part)
    }
    if strategy.privacy.is_local:
        chosen.pop("privacy", None)
    return chosen


@contextmanager
def _reads(strategy: Any, is_watched: bool) -> Iterator[set[str]]:
    """Yield a set that fills with the names of the attributes that are read of a strategy."""
    read = set[str]()
    if not is_watched:
        yield read
        return
    kind: Any = type(strategy)

    def note(self: object, name: str) -> Any:
        read.add(name)
        return kind.__getattribute__(self, name)

    names = {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    meta: Any = type(kind)
    strategy.__class__ = meta(kind.__name__, (kind,), {**names, "__getattribute__": note})
    try:
        yield read
    finally:
        strategy.__class__ = kind


RUINED = "round %d: most losses are no numbers: back to the last good model. Since it came %s"
PLAIN = (ByExamples, Uniform, Mean, Identity, NoMask, Constant)  # of them the step is a mean
STAYS = {"contributions", "monitor", "privacy", "recovery", "sites"}  # what has been spent stays spent
UNPROVED = (
    "nodes run another ClientApp than this project's: {name} relies on it for {unproved}, and does not see "
    "whether it does"
)
EXCLUDED = "%s is left out from here on: participation.readmit=[%s] lets it in again"


@dataclass(kw_only=True, eq=False)
class PseudoGradientStrategy(Freezing):
    """A Flower strategy made of parts; who takes part: :class:`~strategies.core.participation.Freezing`.

    Parameters
    ----------
    weighting, aggregation, server_optimizer, mask, step_size, privacy : the parts
    average_last : evaluate the mean of the last n iterates (fewer while fewer exist); training goes on
        from the last. 1 evaluates the last iterate itself
    buffer_names : names, or ends of names, of floating-point arrays that are buffers
    """

    needs_only_mean: ClassVar[bool] = (
        True  # whether _step does without each node's update; who has another says so
    )
    named_part: ClassVar[str] = ""  # the field that the method is named for, e.g. mask; empty for none
    weighting: Weighting = ByExamples()
    aggregation: Aggregation = Mean()
    server_optimizer: ServerOptimizer = Identity()
    mask: Mask = NoMask()
    step_size: StepSize = Constant()
    privacy: Privacy = NoPrivacy()
    average_last: int = 1
    buffer_names: tuple[str, ...] = BUFFER_NAMES

    _parameters: Tensor = field(init=False, repr=False)  # w[t], as sent to the nodes
    _buffers: Tensor = field(init=False, repr=False)
    _iterates: IterateAverage = field(init=False, repr=False)
    _weighting_state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    _optimizer_state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    _budget: PrivacyAccountant = field(init=False, repr=False)
    _movement: StallDetector = field(default_factory=StallDetector, init=False, repr=False)
    _scratch: Workspace = field(init=False, repr=False)
    _watch: StepWatch = field(default_factory=StepWatch, init=False, repr=False)
    _is_lost: bool = field(default=False, init=False, repr=False)  # whether w[t] is no model for most nodes

    def __post_init__(self) -> None:
        """Refuse what is no part, and counts out of range, in one line each."""
        require_parts(self)
        require_named_part(self, self.name, self.named_part)
        super().__post_init__()
        require_count("average_last", self.average_last)
        self.aggregation.require(self.weighting, self.step_size, self.most_in_round)
        self.privacy.require(self.weighting, self.aggregation, self.mask, self.step_size)
        if self.max_norm is not None and type(self.privacy) is not NoPrivacy and not self.privacy.is_local:
            looks = f"max_norm={self.max_norm} looks at the updates before they have their noise"
            refuse(looks, "set participation.max_norm=null (each update is clipped)")
        self.federated_evaluation = self.federated_evaluation and not self.privacy.is_local
        self._roster.query_config, self._budget = (
            self.privacy.train_config(),
            PrivacyAccountant(self.privacy, self._roster.ledger),
        )
        if self.num_nodes is not None:
            self.mask.require_nodes(self.count_in_round(self.num_nodes))
            self.weighting.require_nodes(self.num_nodes)
        self._iterates = IterateAverage(self.average_last)
        self._scratch = Workspace(keeps_parameters=self.average_last > 1)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the round's nodes and send each of them the model w[t]."""
        require_covered(self, self._beyond_mean())
        self._start_from(arrays)
        self._asked = {} if self.stop_reason else self.ask(grid, server_round)
        if self.is_guarded:
            state = self.state_dict()
            self._recovery.send(arrays, {key: state[key] for key in state.keys() - STAYS})
        return self._messages(self._content(server_round, arrays, config), MessageType.TRAIN)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord]:
        """Take the step to w[t+1]; None, then ``TooManyFailedRounds``, when too few replies are sound."""
        if self.stop_reason:
            return None, MetricRecord()
        if MessageType.TRAIN not in self._has_asked_to:
            replies = list(replies)
            self._start_from_zeros(replies)
        if self._layout is None:
            return None, MetricRecord()
        collected = self._collect(server_round, replies, self._layout)
        updates = collected.updates
        metrics: dict[str, Any] = collected.counts() | self.dropped()
        if self._is_lost and (arrays := self._go_back(server_round)):
            return arrays, MetricRecord(dict(metrics))
        try:
            with self._watch.watch(self):
                shown, weights = self._step(server_round, updates)
        except NoStep as reason:
            self._fail(server_round, reason, collected.faults)
            return None, MetricRecord(dict(metrics))
        self._failed_rounds = 0
        if self.is_guarded:
            self._monitor.accept(updates.partition_ids)
            self._recovery.accept({k: self._monitor.norms.get(k, 0.0) for k in updates.partition_ids})
        self._movement.note(server_round, collected.moved, updates.metrics.get(protocol.LEARNING_RATE))
        metrics |= shown | self._budget.metrics()
        metrics |= self.weighting.metrics(updates, weights, self._weighting_state)
        metrics = with_own(self._mean_metrics(collected), metrics, self._tell_once)
        if collected.extra is not None:
            self._absorb(server_round, updates.partition_ids, collected.extra)
        self._iterates.add(self._parameters, self._buffers)
        return self._layout.record(self._parameters, self._buffers), MetricRecord(dict(metrics))

    def _beyond_mean(self) -> str:
        """Name what makes the step more than a mean of the updates, which sum to one; empty for nothing."""
        slots = ("weighting", "aggregation", "server_optimizer", "mask", "step_size")
        kinds = {name: type(getattr(self, name)) for name in slots}
        beyond = [f"{name}={kind.__name__}" for name, kind in kinds.items() if kind not in PLAIN]
        if isinstance(self.step_size, Constant) and self.step_size.eta > 1:
            beyond.append(f"step_size={self.step_size!r}")
        if type(self)._step is not PseudoGradientStrategy._step or self.extra_record:
            beyond.append("the rule")
        return " and ".join(beyond)

    def _collect(self, server_round: int, replies: Iterable[Message], layout: Layout) -> Collected:
        """Check and stack what the nodes that were asked have sent."""
        needed = needed_metrics(self.weighting, self.aggregation)
        answered = self._answers(MessageType.TRAIN, replies)
        expected = self.extra_record, needed, self.compression, self.required_reply_keys()
        self._listen(answered)
        place = layout, self._parameters, self._scratch, rows(self._sent, answered)
        stack = Stack(*place, *expected, self.examples_key, self._tell_once)
        collected = stack.all(self._sent, answered, self._roster.told)
        if self.is_guarded or self.measures_norms:
            collected = self._without_outliers(collected)
        self._is_lost = self.is_guarded and has_lost_the_nodes(answered)
        self._note(server_round, collected.updates, collected.faults, answered)
        if server_round == 1 and answered.keys() == collected.lacking.keys():
            self._end_for_lack(collected.lacking)
        return collected

    def _end_for_lack(self, lacking: dict[int, str]) -> None:
        """End a run in which every node that answered lacks the same: so they would in each round.

        One model of several is marked: the run ends when none can take a step.

        Raises
        ------
        TooManyFailedRounds : with what they lack, and what asks for it
        """
        lacks = set(lacking.values())
        if len(lacks) != 1:
            return
        parts = {
            "weighting": self.weighting.required_metric,
            "aggregation": self.aggregation.required_metric,
        }
        asking = [slot for slot, asks in parts.items() if asks] + ["privacy"] * bool(
            self.privacy.required_reply_keys
        )
        named = ", ".join(f"{slot}={type(getattr(self, slot)).__name__}" for slot in asking)
        who = f"{self.name} with {named}" if named else self.name
        who_lacks = "the one node" if len(lacking) == 1 else f"each of the {len(lacking)} nodes"
        self.hopeless = (
            f"{who_lacks} that answered in round 1 {lacks.pop()}: {who} needs this project's ClientApp "
            "(clients.client_app), or one that does the same"
        )
        if not self.group:
            raise TooManyFailedRounds(self.hopeless)

    def _mean_metrics(self, collected: Collected) -> dict[str, Any]:
        """Average the metrics of the nodes' replies, or hand them to the user's own function."""
        if self.train_metrics_aggr_fn is not None:
            return self._aggregate("train_metrics_aggr_fn", collected.replies)
        replies, updates = collected.replies.values(), collected.updates
        name_unread(replies, self.extra_record, self._tell_once)
        if unproved := self.unproved() if any(map(is_of_other_app, replies)) else "":
            self._tell_once(UNPROVED.format(name=self.name, unproved=unproved))
        lists = mean_lists(replies, updates.num_examples, self._tell_once)
        return mean_metrics(updates.metrics, updates.num_examples) | lists

    def _without_outliers(self, collected: Collected) -> Collected:
        """Measure the updates; leave out those that are too long, or count too many examples."""
        self._monitor.measure(collected.updates)
        if not self.is_guarded:
            return collected
        inflated = self._monitor.inflated(collected.updates, self._roster.sites)
        faults = self._monitor.outliers() | inflated
        return collected.without(faults) if faults else collected

    def _go_back(self, server_round: int) -> ArrayRecord | None:
        """Return to the last good model; None where there is none to return to."""
        found = self._recovery.retreat()
        if found is None:
            return None
        arrays, state, since, culprit = found
        named = ", ".join(f"{self._roster.display_name(k)} (norm {norm:.3g})" for k, norm in since.items())
        logger.warning(RUINED, server_round, named)
        if culprit is not None:
            logger.warning(EXCLUDED, self._roster.display_name(culprit), self._short_name(culprit))
        self.load_state_dict({**state, "failed_rounds": self._failed_rounds})
        self._start_from(arrays)
        return arrays

    def _step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        """Apply the update rule; return what is shown of it, and alpha[t], or raise ``NoStep``."""
        parts = self.weighting, self.aggregation
        weights, state = compute_weights(*parts, updates, self._weighting_state, self.min_replies)
        self._budget.clip_(updates, server_round)
        mean, factors = self.aggregation.aggregate(updates, weights, self.mask, self._scratch.pair)
        self._budget.noise_(mean, len(weights), server_round)
        if factors is None and not self.mask.is_identity:  # an aggregation of the user's own
            self._watch.unused.add("mask")
        eta = compute_step_size(self.step_size, server_round, updates, weights, mean)
        direction, self._optimizer_state = apply_optimizer(
            self.server_optimizer, mean, self._optimizer_state
        )
        self._weighting_state = state
        self._scratch.free = None if self.server_optimizer.keeps_mean else mean
        self._parameters = self._scratch.moved(self._parameters, direction, factors, eta)
        self._buffers = self.aggregation.aggregate_buffers(updates, weights)
        return {protocol.STEP_SIZE: eta} | self.mask.metrics(factors), weights

    def models_to_evaluate(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        return self._iterates.models(arrays, self._layout or self.check(arrays))

    @property
    def stop_reason(self) -> str:
        return self._budget.over

    @property
    def examples_key(self) -> str:
        return self.weighting.examples_key

    def check(self, arrays: ArrayRecord) -> Layout:
        self.require_frozen(arrays)
        layout = Layout.of(arrays, self.buffer_names, self.frozen_names)
        self.weighting.check(layout)
        self.privacy.check(layout, self.extra_record)
        return layout

    def state_dict(self) -> dict[str, Any]:
        return {
            "weighting": self._weighting_state,
            "server_optimizer": copied(self._optimizer_state),
            "iterates": list(self._iterates.kept),
            "movement": self._movement.state_dict(),
            "privacy": self._budget.state_dict(),
            **self._participation_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._weighting_state = state["weighting"]
        self._optimizer_state = copied(state["server_optimizer"])
        self._iterates.kept = list(state["iterates"])
        self._movement.load_state_dict(state.get("movement"))
        self._budget.load_state_dict(state.get("privacy"))
        self._load_participation_state(state)

    def train_config(self) -> dict[str, ConfigScalar]:
        asked = (self.weighting.required_metric, self.aggregation.required_metric)
        return super().train_config() | self.privacy.train_config() | {name: True for name in asked if name}

    def required_reply_keys(self) -> dict[str, str]:
        """Return what a reply says of a node that does its part, and the fault of one that does not."""
        return self.privacy.required_reply_keys

    extra_record: ClassVar[str | None] = None  # a further ArrayRecord that every reply must carry

    def _content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        """Return what every node of the round is sent; a subclass adds its own."""
        asked = ConfigRecord({**config, **self.train_config(), protocol.SERVER_ROUND: server_round})
        return RecordDict({protocol.ARRAYS: arrays, protocol.CONFIG: asked})

    def _absorb(self, server_round: int, partition_ids: Sequence[int], extra: Tensor) -> None:
        """Use the rows [K, P] of the ``extra_record``, one for each partition; the step has been taken."""

    def _start_from_zeros(self, replies: Sequence[Message]) -> None:
        """Take zeros for the model that nodes were sent, where the mean of what they return says it all.

        Raises
        ------
        ValueError : where the step depends on what they were sent, which only ``configure_train`` knows
        """
        beyond = self._beyond_mean()
        own = {"step_size": Constant(), "average_last": 1, "max_norm": None}
        own |= {"privacy": NoPrivacy(), "compression": NoCompression()}
        changed = [f"{name}={getattr(self, name)!r}" for name in own if getattr(self, name) != own[name]]
        if beyond := beyond or ", ".join(changed):
            raise ValueError(
                f"{self.name}.aggregate_train needs the model that the nodes were sent, for {beyond}: call "
                "configure_train before it"
            )
        sent = [arrays for reply in replies if reply.has_content() and (arrays := arrays_of(reply))]
        if sent:
            self._layout = layout = self.check(sent[0])
            zeros = torch.zeros(layout.num_parameters, dtype=layout.dtype)
            self._start_from(layout.record(zeros, torch.zeros(layout.num_buffers, dtype=torch.float64)))

    def _start_from(self, arrays: ArrayRecord) -> None:
        """Take ``arrays`` as w[t]."""
        self._layout = self._layout or self.check(arrays)
        self._parameters = self._layout.flatten_parameters(arrays)
        self._buffers = self._layout.flatten_buffers(arrays)
        self._optimizer_state = beside(self._parameters, self._optimizer_state)
        if not self._iterates.kept:
            self._iterates.add(self._parameters, self._buffers)


# Remembering: strategies whose nodes keep something from round to round that the server keeps the sum of.
#
# A change that did not arrive, or came in a round that failed, is not in the server's sum: it tells the
# node
# the next time, which goes back to what it had before (:mod:`clients.methods.scaffold`).


@dataclass(kw_only=True, eq=False)
class StatefulClientsStrategy(PseudoGradientStrategy):
    """Tells nodes which of their changes have not been counted."""

    _counted: dict[int, int] = field(default_factory=dict, init=False, repr=False)  # round by partition
    _awaited: set[int] = field(default_factory=set, init=False, repr=False)  # asked, and not counted since

    @property
    def nodes_remember(self) -> bool:
        return True

    def _content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        extra = ConfigRecord(dict(config))
        if lost := [k for k in self._asked if k in self._awaited or k not in self._counted]:
            extra[protocol.CONTROL_LOST] = lost
            extra[protocol.CONTROL_COUNTED] = [self._counted.get(k, 0) for k in lost]
        self._awaited |= self._asked.keys()
        return super()._content(server_round, arrays, extra)

    def _go_back(self, server_round: int) -> ArrayRecord | None:
        """Begin the sums anew, at the server and at the nodes, which have no older ones to go back to."""
        arrays = super()._go_back(server_round)
        if arrays is not None:
            self._counted, self._awaited = {}, set()
            self._clear_sum()
        return arrays

    def _clear_sum(self) -> None:
        """Take 0 for the sum of what the nodes keep; each is told that none of its changes counts."""
        raise NotImplementedError

    def _count(self, server_round: int, partition_ids: Iterable[int]) -> None:
        """Note that the changes of these partitions are in the sum."""
        self._counted |= dict.fromkeys(partition_ids, server_round)
        self._awaited -= set(partition_ids)

    def _population(self) -> int:
        """Return N: the members of a group, where the strategy is that of one."""
        if self.members is not None:
            return len(self.members)
        return self.num_nodes or len(set(self._roster.partition_of.values()))

    def state_dict(self) -> dict[str, Any]:
        own = {"counted": dict(self._counted), "awaited": sorted(self._awaited)}
        return super().state_dict() | own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._counted = dict(state["counted"])
        self._awaited = set(state["awaited"])
