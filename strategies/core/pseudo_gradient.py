"""One round of every method in this package, hook by hook. Read this file first.

    w[t+1] = w[t] - eta[t] * m[t] * P( sum_k alpha[t,k] Delta[t,k] ),    Delta[t,k] = w[t] - w[t,k]

Delta[t,k], node k's *pseudo-gradient*, is computed here from the plain weights w[t,k] that any stock
Flower client returns. The letters are exchangeable parts: alpha is the ``weighting``, the sum over k the
``aggregation``, P the ``server_optimizer``, m the ``mask`` and eta the ``step_size``, a number or one
for each array. A method names its part and leaves the others open: FedExP is an extrapolated step size. A
``privacy`` adds noise to the sum.

Buffers (integer arrays, running statistics) are aggregated too, never masked and never optimised. Frozen
parameters are neither sent nor aggregated.
"""

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from flwr.app import ArrayRecord, ConfigRecord, ConfigScalar, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from strategies.parts.aggregation import Aggregation, Mean, compute_weights, needed_metrics
from strategies.parts.layout import BUFFER_NAMES, Layout
from strategies.parts.mask import Mask, NoMask
from strategies.parts.privacy import (
    NoPrivacy,
    NoServerPrivacy,
    Privacy,
    PrivacyAccountant,
    raise_no_guarantee,
)
from strategies.parts.server_optimizer import (
    Identity,
    ServerOptimizer,
    apply_optimizer,
    copy_state,
    move_state,
    scale_step_size,
)
from strategies.parts.step_size import Constant, StepSize, compute_step_size, step_size_metrics
from strategies.parts.updates import MissingReplies, NoStep, Updates
from strategies.parts.weighting import ByExamples, State, Uniform, Weighting
from strategies.shared import protocol
from strategies.shared.arrays import remove_arrays
from strategies.shared.checks import require, require_count, require_named_part, require_parts
from strategies.shared.compression import Compression, NoCompression
from strategies.shared.flower_names import old_attribute

from .client_registry import MAX_PARTITIONS, ClientRegistry, LostStateMonitor, sample_partitions
from .frozen import FrozenParameters, known_hashes, require_frozen
from .participation import MAX_SITE_SHARE, ClientSampler, NodeEvaluation, Sample, make_node_content
from .questions import Poll
from .replies import (
    Records,
    SoundReplies,
    Stack,
    Workspace,
    arrays_of,
    count_stack_rows,
    is_of_other_app,
    list_extra_records,
    match_replies,
    mean_lists,
    mean_metrics,
    merge_own_metrics,
    read_config,
    warn_of_unread_records,
)
from .step_watch import UnusedPartCheck
from .strategy import (
    DIVERGENCE_ADVICE,
    FAILED_NODES_ADVICE,
    BaseStrategy,
    FailurePolicy,
    StallDetector,
    TooManyFailedRounds,
    require_covered,
    stop_if_all_failed,
)
from .update_monitor import (
    AUTO_MAX_NORM,
    Recovery,
    UpdateMonitor,
    has_mostly_diverged,
    require_max_norm,
)

logger = logging.getLogger("flwr.strategies")

MetricsFunction = Callable[[list[RecordDict], str], MetricRecord]
DROPOUT_MESSAGE = "round %d: %d nodes dropped out (%s): the model stays as it was"
ROLLBACK_WARNING = "round %d: most losses are no numbers: back to the last good model. Since it came %s"
MEAN_PARTS = (ByExamples, Uniform, Mean, Identity, NoMask, Constant)  # with these the step is a mean
KEPT_ON_ROLLBACK = {
    "contributions",
    "monitor",
    "privacy",
    "recovery",
    "sites",
}  # not taken back with a ruined model
UNVERIFIED_WARNING = (
    "nodes run another ClientApp than this project's: {name} relies on it for {unproved}, and does not see "
    "whether it does"
)
NO_MASK = NoMask()
IDLE_KEY = (
    "a correction does not act where its config_key is 0 or empty: send True by that key, and its setting by "
    "another one (reads)"
)
NOT_SENT = (
    "no correction sends it: check that train_config() sends its config_key, that the nodes' known_corrections "
    "name its class, and that its on_round_end returns the record or adds the metric"
)
EXCLUDED_NODE_WARNING = "%s is left out from here on: participation.readmit=[%s] lets it in again"


RENAMED = {  # hooks of a strategy: the old names, for one release, and the new ones
    "_step": "take_step",
    "_content": "make_content",
    "_absorb": "absorb_extra",
}

Iterate = tuple[Tensor, Tensor]  # parameters [P], buffers [B]


@dataclass(frozen=True)
class UpdateRule:
    """The rule at the top of this file; a part that is None is off.

    With ``privacy`` the accountant in the state clips the updates, and adds noise to their mean.
    """

    weighting: Weighting
    aggregation: Aggregation
    server_optimizer: ServerOptimizer | None
    mask: Mask | None
    step_size: StepSize
    privacy: Privacy | None

    def step(
        self, server_round: int, state: "ServerState", updates: Updates, workspace: Workspace | None = None
    ) -> tuple["ServerState", "StepResult"]:
        """Return the state with w[t+1]; raise ``NoStep`` where the parts give none.

        It depends on nothing but its arguments. The tensors of ``state`` and ``updates`` are not to be used
        again: they may be written over, in this step or, in the same ``workspace``, in the next.
        """
        workspace, privacy = workspace or Workspace(), state.privacy
        alpha, weighting = compute_weights(self.weighting, self.aggregation, updates, state.weighting)
        if self.privacy is not None:
            privacy = replace(privacy)
            privacy.clip_(updates, server_round)
        mean, m = self.aggregation.aggregate(updates, alpha, self.mask or NO_MASK, workspace.pair)
        if self.privacy is not None:
            privacy.noise_(mean, len(alpha), server_round)
        eta = compute_step_size(self.step_size, server_round, updates, alpha, mean)
        direction, optimizer = mean, state.server_optimizer
        out: Tensor | None = mean  # fresh memory would cost more
        if self.server_optimizer is not None:
            direction, optimizer = apply_optimizer(self.server_optimizer, mean, optimizer)
            start, layout = state.parameters, updates.layout
            eta = scale_step_size(self.server_optimizer, eta, direction, start, layout)
            out = None if self.server_optimizer.is_mean_reused else mean
        factors = None if m is None else m.values
        parameters = descend(state.parameters, eta, factors, direction, updates.layout, out)
        if factors is not None:
            workspace.release(state.parameters, factors)
        buffers = self.aggregation.aggregate_buffers(updates, alpha)
        stepped = ServerState(privacy, parameters, buffers, weighting, optimizer, state.iterates)
        metrics = step_size_metrics(eta, updates.layout) | (
            {} if self.mask is None else self.mask.metrics(m)
        )
        return stepped, StepResult(
            alpha, metrics, m is not None or self.mask is None or self.mask.is_identity
        )


def descend(
    parameters: Tensor,
    eta: float | Tensor,
    factors: Tensor | None,
    direction: Tensor,
    layout: Layout,
    out: Tensor | None,
) -> Tensor:
    """Return w - eta m P, in ``out`` [P] if given; ``eta`` is a number or one for each layer [L]."""
    if isinstance(eta, Tensor):
        out = torch.empty_like(parameters) if out is None else out
        for layer, value in zip(layout.parameters, eta.tolist(), strict=True):
            c = layer.columns
            m = None if factors is None else factors[c]
            descend(parameters[c], value, m, direction[c], layout, out[c])
        return out
    if factors is None:
        return torch.sub(parameters, direction, alpha=eta, out=out)
    return torch.addcmul(parameters, factors, direction, value=-eta, out=out)


@dataclass(frozen=True)
class ServerState:
    """What the server's next step depends on, of one model.

    Parameters
    ----------
    parameters : [P], w[t]
    buffers : [B], in float64
    weighting, server_optimizer : what these parts remember
    privacy : what has been spent, and the current clip
    iterates : the last models, where their mean is evaluated
    """

    privacy: PrivacyAccountant
    parameters: Tensor = field(default_factory=lambda: torch.empty(0))
    buffers: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    weighting: State = field(default_factory=dict)
    server_optimizer: State = field(default_factory=dict)
    iterates: tuple[Iterate, ...] = ()

    def with_model(self, arrays: ArrayRecord, layout: Layout) -> Self:
        """Return the state whose w[t] are ``arrays``, and what the optimizer remembers beside it."""
        parameters, optimizer = layout.flatten_parameters(arrays), self.server_optimizer
        return replace(
            self,
            parameters=parameters,
            buffers=layout.flatten_buffers(arrays),
            server_optimizer=move_state(parameters, optimizer) if optimizer else {},
        )

    def with_remembered_model(self, most: int) -> Self:
        """Return the state that remembers its model too, and ``most`` models at most."""
        return replace(self, iterates=(*self.iterates, (self.parameters, self.buffers))[-most:])

    def average(self, layout: Layout) -> ArrayRecord:
        """Return the mean of the iterates."""
        parameters, buffers = zip(*self.iterates, strict=True)
        here = [vector.to(parameters[-1].device) for vector in parameters]  # a checkpoint's are elsewhere
        return layout.record(torch.stack(here).mean(0), torch.stack(buffers).mean(0))

    def state_dict(self) -> dict[str, Any]:
        """Return what a run resumes from; the model has its own place in a checkpoint."""
        return {
            "weighting": self.weighting,
            "server_optimizer": copy_state(self.server_optimizer),
            "iterates": list(self.iterates),
            "privacy": self.privacy.state_dict(),
        }

    def with_loaded_state(self, state: dict[str, Any]) -> Self:
        """Return the state that continues from what ``state_dict`` gave."""
        privacy = replace(self.privacy)
        privacy.load_state_dict(state.get("privacy"))
        return replace(
            self,
            privacy=privacy,
            weighting=state["weighting"],
            server_optimizer=copy_state(state["server_optimizer"]),
            iterates=tuple(state["iterates"]),
        )


@dataclass(frozen=True)
class StepResult:
    """What is known of a step.

    Parameters
    ----------
    weights : alpha[t], [K] or [K, L]
    metrics : what a round's metrics show
    is_masked : whether the aggregation has applied the mask
    """

    weights: Tensor
    metrics: dict[str, float]
    is_masked: bool


@dataclass(kw_only=True, eq=False)
class PseudoGradientStrategy(BaseStrategy):
    """A Flower strategy made of parts.

    Parameters
    ----------
    nodes_per_round : K, how many nodes train in a round; None asks all. Groups share them
    fraction_train : K as a share of the connected nodes, rounded down; at least ``min_replies`` (Flower's name)
    num_nodes : N, how many nodes to wait for before the first round; None waits for those of a round, and
        for two at least, as Flower's strategies do
    min_replies : with fewer sound replies the model stays as it was in that round
    max_failed_rounds : how many such rounds in a row end the run with :class:`TooManyFailedRounds`
    federated_evaluation : whether the nodes evaluate the model on their own test data each round
    fraction_evaluate : how many of them do, as a share, rounded down; 0 for none (Flower's name)
    train_metrics_aggr_fn, evaluate_metrics_aggr_fn : makes the round's metrics of what the nodes sent,
        (list of RecordDict, name of the metric that counts examples) -> MetricRecord; None averages
    query_partitions : ask each node once for its partition id, which our ClientApp tells: then the seed
        alone decides who trains when. False: nodes are ordered by node id, which each run draws anew,
        unless ``members``, ``evaluators``, groups or a requester name partitions
    node_timeout : how many seconds to wait for nodes to connect, and to answer a :attr:`question`
    max_norm : an update whose norm is more than ``max_norm`` times the median of those accepted is left out
        (:mod:`.update_monitor`); ``auto`` is 10, None leaves out none
    max_share : the largest share of one node in the mean over nodes that evaluate; 0 weighs all equally.
        None: 0.5 where nodes are sites, and else by test examples alone
    readmit : sites or nodes by name (``north``, ``node 3``) that take part again in a run that is resumed,
        after their update has ruined a model
    measures_norms : whether :meth:`update_norms` has those of each round, also where nothing else asks
    members : the partitions that take part; None for all
    evaluators : those of them that evaluate; None for all
    group : labels the messages, where several strategies share a round (:class:`~strategies.Grouped`)
    seed : decides which partitions train in which round
    dropout : the probability that a chosen node does not take part; it is not asked, and has not failed.
        0: all chosen nodes are asked. A round takes no step where too few are left, or where one is missing
        whose reply is needed; it does not count as failed
    compression : of each node's update (:mod:`strategies.shared.compression`)
    frozen_names : names of arrays that no node changes
    weighting, aggregation, server_optimizer, mask, step_size, privacy : the parts
    average_last : evaluate the mean of the last n iterates (fewer while fewer exist); training goes on
        from the last. 1 evaluates the last iterate itself
    buffer_names : names, or ends of names, of floating-point arrays that are buffers
    """

    renamed = RENAMED
    sums: ClassVar[tuple[str, ...] | None] = ()  # what take_step needs of the updates, see Part.sums
    named_part: ClassVar[str] = ""  # the field that the method is named for, e.g. mask; empty for none
    sent_record: ClassVar[str | None] = None  # name of the message's record that carries ``server_vector``
    extra_record: ClassVar[str | None] = None  # name of a record, shaped as the model, of every reply
    extra_records: ClassVar[tuple[str, ...]] = ()  # names of records, of any shapes, of every reply
    start_of: ClassVar[Callable[[Any, Message], Tensor] | None] = None  # w[t]: see models_to_train
    required_metrics: ClassVar[tuple[str, ...]] = ()  # names of metrics, 0 or above, of every reply

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
    evaluators: tuple[int, ...] | None = None
    group: str = ""
    seed: int = 0
    dropout: float = 0.0
    compression: Compression = NoCompression()
    frozen_names: tuple[str, ...] = field(default=(), repr=False)
    weighting: Weighting = ByExamples()
    aggregation: Aggregation = Mean()
    server_optimizer: ServerOptimizer = Identity()
    mask: Mask = NoMask()
    step_size: StepSize = Constant()
    privacy: Privacy = NoPrivacy()
    average_last: int = 1
    buffer_names: tuple[str, ...] = BUFFER_NAMES

    server_state: ServerState = field(init=False, repr=False)
    registry: ClientRegistry = field(init=False, repr=False)  # who holds what, and has contributed what
    failures: FailurePolicy = field(init=False, repr=False)
    stall_detector: StallDetector = field(default_factory=StallDetector, init=False, repr=False)
    evaluation: NodeEvaluation = field(default_factory=NodeEvaluation, init=False, repr=False)  # the last
    num_trained_examples: float = field(
        default=0.0, init=False, repr=False
    )  # examples behind the last updates

    layout: Layout | None = field(default=None, init=False, repr=False)
    _server_vector: Tensor | None = field(default=None, init=False, repr=False)
    _workspace: Workspace = field(init=False, repr=False)
    _sample: Sample = field(default_factory=Sample, init=False, repr=False)  # who trains in this round
    _poll: Poll | None = field(default=None, init=False, repr=False)  # of the last question
    _recipients: dict[int, int] = field(default_factory=dict, init=False, repr=False)  # nodes by partition
    _sent: dict[int, Message] = field(default_factory=dict, init=False, repr=False)  # by partition
    _sent_message_types: set[str] = field(default_factory=set, init=False, repr=False)  # train, evaluate
    _monitor: UpdateMonitor = field(default_factory=UpdateMonitor, init=False, repr=False)
    _recovery: Recovery = field(default_factory=Recovery, init=False, repr=False)
    _lost_state: LostStateMonitor = field(default_factory=LostStateMonitor, init=False, repr=False)
    _part_check: UnusedPartCheck = field(default_factory=UnusedPartCheck, init=False, repr=False)
    _logged_lines: set[str] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what is no part, and counts out of range, in one line each."""
        require_parts(self)
        require_named_part(self, self.name, self.named_part)
        self._sampler.check()
        self._require_settings()
        self._require_parts_fit()
        self._monitor.max_norm = AUTO_MAX_NORM if self.max_norm == "auto" else self.max_norm  # type: ignore[assignment]
        self.registry = ClientRegistry(
            self.query_partitions, self.node_timeout, self.num_nodes or MAX_PARTITIONS
        )
        self.failures = FailurePolicy(self.min_replies, self.max_failed_rounds)
        if type(self.privacy) is not NoPrivacy:
            self.registry.query_config = self.privacy.train_config()
        if self.has_named_partitions:
            self.registry.require_partition_ids()
        self.federated_evaluation = self.federated_evaluation and not self.privacy.is_local
        self.server_state = ServerState(PrivacyAccountant(self.privacy, self.registry.contribution_log))
        self._workspace = Workspace(keeps_parameters=self.average_last > 1)

    def _require_settings(self) -> None:
        require_count("max_failed_rounds", self.max_failed_rounds)
        require_count("average_last", self.average_last)
        if self.max_norm is not None:
            require_max_norm(self.max_norm)
        share, part = self.max_share, self.fraction_evaluate
        require(share is None or 0 <= share <= 1, "evaluation.max_share", share, "in [0, 1], or null")
        require(0 <= part <= 1, "fraction_evaluate", part, "in [0, 1]")
        require(self.node_timeout >= 0, "node_timeout", self.node_timeout, "seconds, 0 or above")
        for name in ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"):
            given, expected = getattr(self, name), "a function of the nodes' replies, or None"
            require(given is None or callable(given), name, given, expected)
        for record in filter(None, (self.sent_record, *list_extra_records(self))):
            if record in protocol.RECORDS or record.startswith(f"{protocol.ARRAYS}-"):
                raise ValueError(
                    f"{self.name} names a record {record!r}, and messages or replies have one of that name: "
                    "take another name"
                )

    def _require_parts_fit(self) -> None:
        """Refuse parts that do not go together, or do not suit the number of nodes."""
        has_kind = bool(self.compression.kind) or isinstance(self.compression, NoCompression)
        called = "a class with a kind, the name by which messages ask nodes for it"
        require(has_kind, "compression", type(self.compression).__name__, called)
        self.aggregation.require(self.weighting, self.step_size, self.max_nodes_in_round)
        if type(self.privacy) is not NoPrivacy:
            self.privacy.require(self.weighting, self.aggregation, self.mask, self.step_size)
            if self.max_norm is not None and not self.privacy.is_local:
                looks = f"max_norm={self.max_norm} looks at the updates before they have their noise"
                raise_no_guarantee(looks, "set participation.max_norm=null (each update is clipped)")
            if self.question is not None:
                answers = "nodes would answer a question before each round, and without noise"
                raise_no_guarantee(answers, "choose a strategy that asks none")
        if self.num_nodes is not None:
            if type(self.mask) is not NoMask:
                self.mask.require_nodes(self.count_in_round(self.num_nodes))
            self.weighting.require_nodes(self.num_nodes)

    def for_group(self, name: str, members: tuple[int, ...]) -> Self:
        """Return a fresh strategy like this one for a group of nodes: one of several that share a round.

        They share what is known of nodes, and, as they take turns, their scratch space.

        Raises
        ------
        ValueError : for a strategy that asks a question, whose answers are about one model
        """
        if self.question is not None:
            raise ValueError(
                f"strategy.inner={self.name} asks nodes before each round about one model, and groups have "
                "several: choose another inner strategy"
            )
        strategy = replace(
            self,
            members=members,
            group=name,
            min_replies=min(self.min_replies, max(1, len(members))),  # more there cannot be
            max_failed_rounds=sys.maxsize,  # the run ends when all groups have failed too often
        )
        strategy.registry, strategy._workspace, strategy._part_check = (
            self.registry,
            self._workspace,
            self._part_check,
        )
        strategy.stall_detector = StallDetector(alone=False)
        return strategy

    # ---- a round: Flower's four hooks ----------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the round's nodes and send each of them the model w[t]."""
        require_covered(self, self.describe_beyond_mean())
        self._start_from(arrays)
        if self.question is not None and not self.stop_reason:
            self._pose_question(server_round, arrays, config, grid)
        self._recipients = {} if self.stop_reason else self.select_nodes(grid, server_round)
        if self.is_guarded:
            state = self.state_dict()
            self._recovery.send(arrays, {key: state[key] for key in state.keys() - KEPT_ON_ROLLBACK})
        return self._messages(self.make_content(server_round, arrays, config), MessageType.TRAIN)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord]:
        """Take the step to w[t+1]; None, then ``TooManyFailedRounds``, when too few replies are sound."""
        if self.stop_reason:
            return None, MetricRecord()
        if MessageType.TRAIN not in self._sent_message_types:
            replies = list(replies)
            self._start_from_zeros(replies)
        if self.layout is None:
            return None, MetricRecord()
        answered = self._match_replies(MessageType.TRAIN, replies)
        collected = self._collect_replies(server_round, answered, self.layout)
        metrics: dict[str, Any] = collected.count_replies()
        if self.dropout:
            metrics[protocol.DROPPED] = self._sample.num_dropped
        if self.is_guarded and has_mostly_diverged(answered) and (arrays := self._roll_back(server_round)):
            return arrays, MetricRecord(dict(metrics))
        try:
            self.failures.require_replies(len(collected.updates.partition_ids))
            step_metrics, weights = self._watched_step(server_round, collected.updates)
        except NoStep as lack:
            faults = collected.faults if self._poll is None else {**self._poll.faults, **collected.faults}
            self._count_failed_round(server_round, lack, faults, answered)
            return None, MetricRecord(dict(metrics))
        self._finish_step(server_round, collected)
        metrics |= step_metrics
        if type(self.privacy) is not NoPrivacy:
            metrics |= self.accountant.metrics()
        metrics |= self.weighting.metrics(collected.updates, weights, self.server_state.weighting)
        metrics = merge_own_metrics(self._mean_metrics(collected), metrics, self._log_once)
        return self.layout.record(self.parameters, self.buffers), MetricRecord(dict(metrics))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send nodes the model to evaluate (:meth:`models_to_evaluate`).

        Of several a node chooses one, as in training: their message also has what :meth:`train_config` asks for.
        """
        if not self.federated_evaluation or self.fraction_evaluate == 0:
            self._recipients, self._sent = {}, {}
            return []
        nodes = self.find_nodes(grid)
        judges = self.choose_evaluators(list(nodes), server_round)
        drawn = self._sampler.draw_evaluators(judges, self.fraction_evaluate, server_round)
        self._recipients = {k: nodes[k] for k in drawn}
        models = list(self.models_to_evaluate(arrays).values())
        chooses = self.train_config() if len(models) > 1 else {}  # a node is evaluated with its choice
        config_values = {**config, **chooses, protocol.SERVER_ROUND: server_round}
        return self._messages(self._content_of(models, config_values), MessageType.EVALUATE)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average the nodes' metrics, weighted by their numbers of test examples."""
        answered = self._match_replies(MessageType.EVALUATE, replies)
        self.evaluation = NodeEvaluation.from_replies(
            server_round, self._sent, answered, self.registry, self.examples_key
        )
        void = {} if self.group else self.evaluation.find_void_metrics()
        if not self.evaluation.sound_replies:
            return MetricRecord(void) if void else None
        if self.evaluate_metrics_aggr_fn is not None:
            return MetricRecord(
                self._call_metrics_function("evaluate_metrics_aggr_fn", self.evaluation.sound_replies)
                | void
            )
        limit = MAX_SITE_SHARE if self.max_share is None and self.registry.sites else self.max_share
        return MetricRecord(self.evaluation.average_metrics(limit, self._log_once) | void)

    # ---- who takes part ------------------------------------------------------------------------

    @property
    def _sampler(self) -> ClientSampler:
        return ClientSampler(
            self.nodes_per_round,
            self.fraction_train,
            self.num_nodes,
            self.min_replies,
            self.dropout,
            self.members,
            bool(self.group),
            self.seed,
        )

    def find_nodes(self, grid: Grid) -> dict[int, int]:
        """Return the node ids of the partitions that are connected and take part, by partition id."""
        nodes, excluded = self._sampler.find_nodes(grid, self.registry), self._recovery.excluded
        return {k: nodes[k] for k in nodes if k not in excluded} if excluded else nodes

    def select_nodes(self, grid: Grid, server_round: int) -> dict[int, int]:
        """Return the nodes that train in a round, as {partition id: node id}."""
        nodes, sampler = self.find_nodes(grid), self._sampler
        population = self.registry.find_nodes(grid, 1) if sampler.has_shared_round else nodes
        self._sample = sampler.draw(nodes, list(population), server_round, self.choose)
        return self._sample.nodes

    def choose(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the partitions that train in this round, out of those that are connected, asked before or not."""
        return sample_partitions(
            partition_ids, self.count_in_round(len(partition_ids)), self.seed, server_round
        )

    def choose_evaluators(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the partitions that may evaluate, out of those that are connected."""
        return [k for k in partition_ids if self.evaluators is None or k in self.evaluators]

    def choose_candidates(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the partitions that are asked the :attr:`question`, out of those that are connected."""
        return partition_ids

    @property
    def answers(self) -> Mapping[int, Mapping[str, float]]:
        """What candidates have answered before this round: {partition: {metric: value}}, all finite.

        One that did not answer, or not with numbers, is left out.
        """
        return {} if self._poll is None else self._poll.answers

    def _pose_question(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> None:
        """Ask the candidates at w[t]; a round that is configured again has its answers already."""
        question, last = self.question, self._poll
        assert question is not None
        if last is not None and last.server_round == server_round and last.arrays is arrays:
            return
        nodes = self.find_nodes(grid)
        self._recipients = {k: nodes[k] for k in self.choose_candidates(list(nodes), server_round)}
        settings = ConfigRecord({**config, **question.config(), protocol.SERVER_ROUND: server_round})
        content = RecordDict({protocol.ARRAYS: arrays, protocol.CONFIG: settings})
        messages = self._messages(content, protocol.QUESTION)
        replies = self._match_replies(
            protocol.QUESTION, grid.send_and_receive(messages, timeout=self.node_timeout)
        )
        self._poll = Poll.from_replies(question, server_round, arrays, self._sent, replies, self.registry)

    def question_messages(self) -> tuple[list[Message], list[Message]]:
        if self._poll is None:
            return [], []
        return list(self._poll.sent.values()), list(self._poll.replies.values())

    def count_in_round(self, nodes: int) -> int:
        """Return how many of ``nodes`` train in a round."""
        return self._sampler.count_in_round(nodes)

    @property
    def max_nodes_in_round(self) -> int | None:
        """How many nodes a round can have, a group's members at most; None where that is not known."""
        return self._sampler.max_nodes_in_round

    @property
    def has_named_partitions(self) -> bool:
        """Whether settings name partitions, so that nodes are asked in any case which they hold."""
        return self.members is not None or self.evaluators is not None

    # ---- what goes out and comes back ----------------------------------------------------------

    def make_content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        """Return what every node of the round is sent; a subclass adds its own.

        ``local-steps`` in ``config`` sets how many steps each node takes in this round.
        """
        config_values = {**config, **self.train_config(), protocol.SERVER_ROUND: server_round}
        content = self._content_of(self.models_to_train(arrays), config_values)
        if self.sent_record is not None:
            assert self.layout is not None
            content[self.sent_record] = self.layout.record(self.vector_to_send(), None)
        return content

    def models_to_train(self, arrays: ArrayRecord) -> Sequence[ArrayRecord]:
        """Return the models that every node of a round is sent; ``arrays``, w[t], is the first.

        Of several a node trains the one that it chooses (:meth:`clients.Correction.choose_model`), and
        replies with it and its number, which :meth:`start_of` reads:
        ``reply.content["metrics"]["chosen-model"]``. Where one model is sent, a reply has none.
        """
        return [arrays]

    def _content_of(self, models: Sequence[ArrayRecord], config: Mapping[str, Any]) -> RecordDict:
        """Return a message's models, the further ones without what is frozen, and what it asks for."""
        first, *others = models
        number = {protocol.NUM_MODELS: len(models)} if others else {}
        content = RecordDict({protocol.ARRAYS: first, protocol.CONFIG: ConfigRecord({**config, **number})})
        frozen = self.layout.frozen if self.layout else ()
        for k, model in enumerate(others, 1):
            content[protocol.model_key(k)] = remove_arrays(model, frozen) if frozen else model
        return content

    def vector_to_send(self) -> Tensor:
        """Return what the message carries as ``sent_record``, [P]."""
        return self.server_vector

    def _messages(self, content: RecordDict, message_type: str) -> list[Message]:
        """Return a message to each of the nodes that are asked."""
        contents = dict.fromkeys(self._recipients, content)
        if frozen := self._frozen:
            content, whole = frozen.split(content, self._recipients)
            contents = dict.fromkeys(self._recipients, content) | whole
        if sites := self.registry.sites:
            contents = {k: make_node_content(content, k, sites) for k, content in contents.items()}
        self._sent_message_types.add(message_type)
        self._sent = {
            k: Message(contents[k], node, message_type, group_id=self.group)
            for k, node in self._recipients.items()
        }
        return list(self._sent.values())

    def stop_awaiting(self, messages: Collection[Message]) -> None:
        passed = set(map(id, messages))
        kept = {k: message for k, message in self._sent.items() if id(message) not in passed}
        num_passed_over = self._sample.num_passed_over + len(self._sent) - len(kept)
        self._sent, self._sample = kept, replace(self._sample, num_passed_over=num_passed_over)

    def _match_replies(self, message_type: str, replies: Iterable[Message]) -> dict[int, Message]:
        """Return the replies to what was sent; where nothing ever was, as in a unit test, all, in order."""
        if message_type not in self._sent_message_types:
            self._sent = dict(enumerate(replies))
            return dict(self._sent)
        answered = match_replies(self._sent, replies)
        if frozen := self._frozen:
            frozen.record_receivers(self._sent, answered)
        return answered

    @property
    def _frozen(self) -> FrozenParameters | None:
        """The frozen parameters and which nodes have them; None where there are none."""
        if self.layout is None or not self.layout.frozen:
            return None
        return FrozenParameters(self.layout, self.registry)

    def _collect_replies(
        self, server_round: int, answered: Mapping[int, Message], layout: Layout
    ) -> SoundReplies:
        """Return the sound replies of the nodes that were asked, and why others are left out."""
        collected = self._stack_replies(answered, layout)
        if self.is_guarded or self.measures_norms:
            collected = self._without_outliers(collected)
        if server_round == 1 and not self.group:
            stop_if_all_failed(len(self._sent), answered)
        self._record_round(server_round, collected, answered)
        if server_round == 1 and answered.keys() == collected.missing_metrics.keys():
            self._stop_if_all_lack(collected.missing_metrics, any(map(is_of_other_app, answered.values())))
        return collected

    def _stack_replies(self, answered: Mapping[int, Message], layout: Layout) -> SoundReplies:
        """Check and stack the replies."""
        compression = None if isinstance(self.compression, NoCompression) else self.compression
        stack = Stack(
            layout,
            self.parameters,
            self._workspace,
            count_stack_rows(self._sent, answered),
            self.extra_record,
            [*needed_metrics(self.weighting, self.aggregation), *self.required_metrics],
            compression,
            self.required_reply_keys(),
            self.examples_key,
            self._log_once,
            self.extra_records,
            self.check_records,
            self.start_of,
        )
        return stack.read_all(self._sent, answered, self.registry.has_partition_ids)

    def _record_round(
        self, server_round: int, collected: SoundReplies, answered: Mapping[int, Message]
    ) -> None:
        """Count what each node has contributed; log why others are left out, to be asked again who they are."""
        updates, faults = collected.updates, collected.faults
        self.num_trained_examples = float(updates.num_examples.sum())
        examples = map(int, updates.num_examples.tolist())
        self.registry.contribution_log.count_round(
            dict(zip(updates.partition_ids, examples, strict=True)), faults
        )
        if faults:
            self.registry.recheck({answered[k].metadata.src_node_id for k in faults if k in answered})
        for k, reason in faults.items():
            logger.warning("round %d: %s left out: %s", server_round, self.registry.display_name(k), reason)
        kept = {
            k: value
            for k, r in collected.replies.items()
            if (value := read_config(r, protocol.KEPT)) is not None
        }
        if kept:
            self._lost_state.check_round(server_round, kept, self.registry)

    def _stop_if_all_lack(self, lacking: dict[int, str], is_other_app: bool) -> None:
        """End a run in which every node that answered lacks the same: so they would in each round.

        A group among others is only marked: the run ends when none can take a step. ``is_other_app`` says
        whether a node runs another ClientApp than this project's.

        Raises
        ------
        TooManyFailedRounds : with what they lack, and what asks for it
        """
        lacks = set(lacking.values())
        if len(lacks) != 1:
            return
        who_lacks = "the one node" if len(lacking) == 1 else f"each of the {len(lacking)} nodes"
        cause = self._need_of_our_app() if is_other_app else self._need_of_correction()
        self.failures.fatal_reason = f"{who_lacks} that answered in round 1 {lacks.pop()}: {cause}"
        if not self.group:
            raise TooManyFailedRounds(self.failures.fatal_reason)

    def _need_of_our_app(self) -> str:
        parts = {
            "weighting": self.weighting.required_metric,
            "aggregation": self.aggregation.required_metric,
        }
        asking = [slot for slot, asks in parts.items() if asks]
        asking += ["privacy"] * bool(self.privacy.required_reply_keys)
        named = ", ".join(f"{slot}={type(getattr(self, slot)).__name__}" for slot in asking)
        who = f"{self.name} with {named}" if named else self.name
        return f"{who} needs this project's ClientApp (clients.client_app), or one that does the same"

    def _need_of_correction(self) -> str:
        """Say why nodes of this project's ClientApp do not send what one of their corrections should."""
        sent = self.train_config().items()
        if idle := [f"{k}={v!r}" for k, v in sent if not v and not k.startswith(protocol.COMPRESSION)]:
            return f"{self.name} sends {', '.join(idle)}, and {IDLE_KEY}"
        return NOT_SENT

    def _mean_metrics(self, collected: SoundReplies) -> dict[str, Any]:
        """Average the metrics of the nodes' replies, or hand them to the user's own function."""
        if self.train_metrics_aggr_fn is not None:
            return self._call_metrics_function("train_metrics_aggr_fn", collected.replies)
        replies, updates = collected.replies.values(), collected.updates
        warn_of_unread_records(replies, list_extra_records(self), self._log_once)
        if unproved := self.describe_unverified() if any(map(is_of_other_app, replies)) else "":
            self._log_once(UNVERIFIED_WARNING.format(name=self.name, unproved=unproved))
        lists = mean_lists(replies, updates.num_examples, self._log_once)
        return mean_metrics(updates.metrics, updates.num_examples) | lists

    def _call_metrics_function(self, name: str, replies: Mapping[int, Message]) -> dict[str, Any]:
        """Return the metrics that the user's function of this name makes from sound replies."""
        metrics = getattr(self, name)([reply.content for reply in replies.values()], self.examples_key)
        if not isinstance(metrics, MetricRecord):
            raise TypeError(f"{name} returned a {type(metrics).__name__}, expected a MetricRecord")
        return dict(metrics)

    def _log_once(self, line: str) -> None:
        """Log a line, the first time; of those that nodes decide, a hundred at most."""
        if line not in self._logged_lines and len(self._logged_lines) < 100:
            self._logged_lines.add(line)
            logger.warning("%s", line)

    # ---- the step ------------------------------------------------------------------------------

    def _watched_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        """Take the step; watch a user's first own step for parts that it leaves out."""
        if self._part_check.has_checked or type(self).take_step.__module__.startswith("strategies."):
            return self.take_step(server_round, updates)
        with self._part_check.check_step(self):
            return self.take_step(server_round, updates)

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        """Apply the update rule; return what is shown of it, and alpha[t], or raise ``NoStep``.

        It goes from :attr:`parameters` and sets them, and :attr:`buffers`; a subclass may set both, before and
        after. The old values and ``updates`` may be written over in this step, the new ones in the next: copy what
        you keep. With several models ``server_state`` holds what the parts remember of each, too
        (:mod:`strategies.ifca`).
        """
        self.server_state, result = self._rule.step(
            server_round, self.server_state, updates, self._workspace
        )
        if not result.is_masked:  # an aggregation of the user's own
            self._part_check.report(self, {"mask"})
        return result.metrics, result.weights

    @property
    def _rule(self) -> UpdateRule:
        """The rule of the parts that are on."""
        optimizer = None if type(self.server_optimizer) is Identity else self.server_optimizer
        mask = None if type(self.mask) is NoMask else self.mask
        privacy = None if isinstance(self.privacy, NoServerPrivacy) else self.privacy
        return UpdateRule(self.weighting, self.aggregation, optimizer, mask, self.step_size, privacy)

    # What a step of the user's own reads and writes.

    @property
    def parameters(self) -> Tensor:
        """w[t], [P], as sent to the nodes."""
        return self.server_state.parameters

    @parameters.setter
    def parameters(self, parameters: Tensor) -> None:
        self.server_state = replace(self.server_state, parameters=parameters)

    @property
    def buffers(self) -> Tensor:
        """The model's buffers, [B] in float64; after a step the nodes' mean."""
        return self.server_state.buffers

    @buffers.setter
    def buffers(self, buffers: Tensor) -> None:
        self.server_state = replace(self.server_state, buffers=buffers)

    @property
    def server_vector(self) -> Tensor:
        """What a strategy with a ``sent_record`` keeps beside the model, [P]; zeros at the start.

        It is sent with each message, and a resumed run goes on with it. Assign a new tensor; never change it
        in place.
        """
        kept = self._server_vector
        kept = torch.zeros_like(self.parameters) if kept is None else kept
        self._server_vector = kept.to(self.parameters.device)  # a checkpoint's lies in host memory
        return self._server_vector

    @server_vector.setter
    def server_vector(self, vector: Tensor | None) -> None:
        self._server_vector = vector

    @property
    def accountant(self) -> PrivacyAccountant:
        """What clips, adds noise and counts what has been spent."""
        return self.server_state.privacy

    _parameters, _buffers = old_attribute("_parameters", "parameters"), old_attribute("_buffers", "buffers")
    _layout, _budget = old_attribute("_layout", "layout"), old_attribute("_budget", "accountant")

    def _finish_step(self, server_round: int, collected: SoundReplies) -> None:
        """Note that the step has been taken."""
        updates = collected.updates
        self.failures.num_failed = 0
        if self.is_guarded:
            self._monitor.accept(updates.partition_ids)
            self._recovery.accept({k: self._monitor.norms.get(k, 0.0) for k in updates.partition_ids})
        self.stall_detector.count_round(
            server_round, collected.has_moved, updates.metrics.get(protocol.LEARNING_RATE)
        )
        if collected.extra is not None:
            self.absorb_extra(server_round, updates.partition_ids, collected.extra)
        if collected.records:
            self.absorb_records(server_round, collected.records)
        if self.average_last > 1:
            self.server_state = self.server_state.with_remembered_model(self.average_last)

    def absorb_extra(self, server_round: int, partition_ids: Sequence[int], extra: Tensor) -> None:
        """Use the rows [K, P] of the ``extra_record``, one for each partition; the step has been taken."""

    def check_records(self, records: Records) -> None:
        """Look at the ``extra_records`` of one reply, whose values are finite.

        Parameters
        ----------
        records : {name of the record: {name of the array: its values, a tensor}}

        Raises
        ------
        ValueError : for names, shapes or values that they should not have; the reply is left out
        """

    def absorb_records(self, server_round: int, records: Mapping[int, Records]) -> None:
        """Use the ``extra_records`` of the sound replies, by partition id; the step has been taken."""

    def _count_failed_round(
        self, server_round: int, lack: NoStep, faults: dict[int, str], answered: Mapping[int, Message]
    ) -> None:
        """Count a round without a step, unless the only cause is dropout or nodes passed over."""
        if self._sample.is_partial and not faults and isinstance(lack, MissingReplies):
            if dropped := self._sample.num_dropped:
                logger.info(DROPOUT_MESSAGE, server_round, dropped, lack)
            return
        named = [f"{self.registry.display_name(k)} {reason}" for k, reason in faults.items()]
        advice = DIVERGENCE_ADVICE if has_mostly_diverged(answered) else FAILED_NODES_ADVICE
        self.failures.count(server_round, lack, named, advice)

    def describe_beyond_mean(self) -> str:
        """Name what makes the step more than a mean of the updates with weights that sum to one; empty for nothing."""
        slots = ("weighting", "aggregation", "server_optimizer", "mask", "step_size")
        kinds = {name: type(getattr(self, name)) for name in slots}
        beyond = [f"{name}={kind.__name__}" for name, kind in kinds.items() if kind not in MEAN_PARTS]
        if isinstance(self.step_size, Constant) and self.step_size.eta > 1:
            beyond.append(f"step_size={self.step_size!r}")
        if type(self).take_step is not PseudoGradientStrategy.take_step or list_extra_records(self):
            beyond.append("the rule")
        return " and ".join(beyond)

    def _start_from(self, arrays: ArrayRecord) -> None:
        """Take ``arrays`` as w[t]."""
        self.layout = self.layout or self.check(arrays)
        self.server_state = self.server_state.with_model(arrays, self.layout)
        if self.average_last > 1 and not self.server_state.iterates:
            self.server_state = self.server_state.with_remembered_model(self.average_last)

    def _start_from_zeros(self, replies: Sequence[Message]) -> None:
        """Take zeros for the model that nodes were sent, where the step is the mean of what they return.

        Raises
        ------
        ValueError : where the step depends on what they were sent, which only ``configure_train`` knows
        """
        beyond = self.describe_beyond_mean()
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
            self.layout = layout = self.check(sent[0])
            zeros = torch.zeros(layout.num_parameters, dtype=layout.dtype)
            self._start_from(layout.record(zeros, torch.zeros(layout.num_buffers, dtype=torch.float64)))

    # ---- updates out of proportion (:mod:`.update_monitor`) ------------------------------------

    @property
    def is_guarded(self) -> bool:
        """Whether norms are looked at, and a ruined model is taken back: for sites, or if asked to."""
        return self.max_norm is not None or bool(self.registry.sites)

    def _without_outliers(self, collected: SoundReplies) -> SoundReplies:
        """Measure the updates; leave out those that are too long, or count too many examples."""
        self._monitor.measure(collected.updates)
        if not self.is_guarded:
            return collected
        inflated = self._monitor.find_inflated_counts(collected.updates, self.registry.sites)
        faults = self._monitor.find_outliers() | inflated
        return collected.without(faults) if faults else collected

    def _roll_back(self, server_round: int) -> ArrayRecord | None:
        """Return to the last good model; None where there is none to return to."""
        last = self._recovery.roll_back()
        if last is None:
            return None
        arrays, state, since, culprit = last
        named = ", ".join(f"{self.registry.display_name(k)} (norm {norm:.3g})" for k, norm in since.items())
        logger.warning(ROLLBACK_WARNING, server_round, named)
        if culprit is not None:
            name = self.registry.short_name(culprit)
            logger.warning(EXCLUDED_NODE_WARNING, self.registry.display_name(culprit), name)
        self.load_state_dict({**state, "failed_rounds": self.failures.num_failed})
        self._start_from(arrays)
        return arrays

    def measure_norms(self) -> None:
        self.measures_norms = True

    def update_norms(self) -> dict[str, float]:
        return {self.registry.short_name(k): norm for k, norm in self._monitor.norms.items()}

    # ---- what a strategy of this package promises (:mod:`.strategy`) ---------------------------

    def models_to_evaluate(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        layout = self.layout or self.check(arrays)
        if self.average_last == 1:
            return {"global": arrays}
        return {"average": self.server_state.average(layout) if self.server_state.iterates else arrays}

    @property
    def stop_reason(self) -> str:
        return "" if self.privacy.stop_at_epsilon is None else self.accountant.stop_reason

    @property
    def examples_key(self) -> str:
        """The metric of a reply that counts its examples."""
        return self.weighting.examples_key

    @property
    def has_stateful_nodes(self) -> bool:
        """True with error feedback."""
        return self.compression.error_feedback

    def set_num_rounds(self, rounds: int) -> None:
        self.max_failed_rounds = min(self.max_failed_rounds, rounds)
        self.failures.max_failed_rounds = self.max_failed_rounds

    def freeze(self, names: Iterable[str]) -> None:
        self.frozen_names = tuple(dict.fromkeys((*self.frozen_names, *names)))

    def check(self, arrays: ArrayRecord) -> Layout:
        if self.frozen_names:
            require_frozen(self.frozen_names, arrays)
        layout = Layout.of(arrays, self.buffer_names, self.frozen_names)
        self.weighting.check(layout)
        if type(self.privacy) is not NoPrivacy:
            self.privacy.check(layout, next(iter(list_extra_records(self)), None))
        return layout

    def train_config(self) -> dict[str, ConfigScalar]:
        metrics = (self.weighting.required_metric, self.aggregation.required_metric)
        config = super().train_config() | {name: True for name in metrics if name}
        if not isinstance(self.compression, NoCompression):
            config |= self.compression.train_config()
        if type(self.privacy) is not NoPrivacy:
            config |= self.privacy.train_config()
        return config

    def required_reply_keys(self) -> dict[str, str]:
        """Return the keys that a reply must have, each with the fault of a reply without it.

        The keys are of the reply's configuration. A node of this project whose correction ``remembers`` says
        ``count_replies`` (``protocol.KEPT``); a reply without a key is left out, with its fault in the log.
        """
        return self.privacy.required_reply_keys

    def describe_unverified(self) -> str:
        """Name what nodes are asked to do and no reply shows; empty for nothing."""
        compressed = not isinstance(self.compression, NoCompression)
        return f"compression={type(self.compression).__name__}" if compressed else ""

    def per_site_metrics(self) -> dict[str, dict[str, float]]:
        return self.evaluation.by_site(self.registry.sites)

    def known_partitions(self) -> Mapping[int, int]:
        return self.registry.partition_of if self.registry.has_partition_ids else {}

    def participation_counts(self) -> dict[str, dict[str, int]]:
        kept = self.registry.contribution_log.counts
        return {self.registry.display_name(k): kept[k] for k in sorted(kept)}

    def summary(self) -> None:
        """Log the strategy and its parts."""
        logger.info("\t%r", self)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            **self.server_state.state_dict(),
            "movement": self.stall_detector.state_dict(),
            "failed_rounds": self.failures.num_failed,
            "sites": dict(self.registry.sites),
            "contributions": self.registry.contribution_log.state_dict(),
        }
        if self.is_guarded:
            state |= {"monitor": self._monitor.state_dict(), "recovery": self._recovery.state_dict()}
        if self.sent_record is not None:
            state["server_vector"] = self._server_vector
        return state | ({"frozen_at": known_hashes(self.registry)} if self.frozen_names else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.server_state = self.server_state.with_loaded_state(state)
        self.stall_detector.load_state_dict(state["movement"])
        self.failures.num_failed = state["failed_rounds"]
        self.registry.sites.update(state.get("sites", {}))  # without what stays: see KEPT_ON_ROLLBACK
        self.registry.contribution_log.load_state_dict(state.get("contributions", {}))
        if self.sent_record is not None:
            self._server_vector = state["server_vector"]
        if "monitor" in state:
            self._monitor.load_state_dict(state["monitor"])
            self._recovery.load_state_dict(state["recovery"])
            excluded = self._recovery.excluded
            excluded -= {k for k in excluded if self.registry.short_name(k) in self.readmit}
        if (known := state.get("frozen_at")) is None:  # saved with nothing frozen: vectors have every array
            self.frozen_names = ()
        else:
            self.registry.frozen_at.update({k: (None, digest) for k, digest in known.items()})
