"""Choices that exclude each other: one table for :mod:`.preflight`, the batched engine and the documentation.

A row (:class:`~strategies.shared.checks.Conflict`) states two such choices. Checks that need the whole
experiment are here (``find``). Strategies' parts and nodes check themselves, as they are also used without
this file: their rows name the check (``checked_by``), and a test runs each row's ``example`` into it. What
keeps nodes from being batched is decided at the nodes: :mod:`clients.batched.eligibility` has these rows.

``python -m baselines.experiment.compatibility`` writes the table into docs/reference/combinations.md.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from baselines.errors import UserError
from clients import Classification, NextToken
from clients.batched.eligibility import BATCH_OPTION, OBSTACLES
from strategies import WeightErosionForAll
from strategies.parts.clustering import Grouping
from strategies.parts.privacy import Gaussian
from strategies.parts.weighting import EVERY_NODE, Erosion
from strategies.shared.checks import Conflict, first_message

from .experiment import Experiment
from .overrides import ROOT
from .validation import Settings


def check_compatibility(experiment: Experiment) -> None:
    """Raise ``UserError`` with the message of the first conflict in the experiment."""
    if message := first_message(CONFLICTS, experiment):
        raise UserError(message)


def without_test_set(settings: Settings) -> str:
    """Say that the server has no test set, and why."""
    reason = "central_test=none" if settings.central_test == "none" else "all data lie at the nodes"
    return f"the server has no test set ({reason})"


# The finders: each returns the message for an experiment with its conflict, else None.


def _rule_of(experiment: Experiment) -> Any:
    """Return the strategy that updates a model: for a strategy of groups, the inner one."""
    return getattr(experiment.prototype, "inner", experiment.prototype)


def _find_replaced_requester(experiment: Experiment) -> str | None:
    if not isinstance(experiment.prototype, WeightErosionForAll):
        return None
    requester = experiment.cfg.strategy.inner.weighting.requester
    if requester == EVERY_NODE or not isinstance(_rule_of(experiment).weighting, Erosion):
        return None
    return (
        f"weighting.requester={requester}: strategy=weight_erosion_all trains a model for each node; "
        f"leave it out, set it to {EVERY_NODE}, or choose strategy=weight_erosion"
    )


def _find_other_requester(experiment: Experiment) -> str | None:
    weighting = getattr(_rule_of(experiment), "weighting", None)
    if not isinstance(weighting, Erosion):
        return None
    for_all = isinstance(experiment.prototype, WeightErosionForAll)
    requester = EVERY_NODE if for_all else weighting.requester
    judged = getattr(experiment.partitioner, "requester", None)
    if judged in (None, requester):
        return None
    return (
        f"partitioner.requester={judged}: the model for weighting.requester={requester} would be "
        "judged on another node's test examples; set both to the same node, or partitioner.requester=null"
    )


def _find_few_validation_examples(experiment: Experiment) -> str | None:
    strategy, size = experiment.prototype, experiment.settings.validation_size
    grouping = getattr(strategy, "grouping", None)
    if (
        not isinstance(grouping, Grouping)
        or not strategy.needs_server_data
        or size >= grouping.least_examples
    ):
        return None
    return (
        f"validation_size={size}: {type(grouping).__name__} is tuned on one half of the validation "
        "examples and groups by the other; set validation_size to 2 or more"
    )


def _find_unjudged_own_models(experiment: Experiment) -> str | None:
    training, own = experiment.training, ""
    if training.private:
        own = f"client.private={list(training.private)}"
    elif training.personal is not None:
        own = f"client.personal={type(training.personal).__name__}"
    if not own or experiment.settings.node_test_fraction:
        return None
    return (
        f"{own}: the model is whole at a node alone, which is to evaluate it on a share of its data: "
        "set node_test_fraction above 0, e.g. 0.2"
    )


def _find_moved_private_layers(experiment: Experiment) -> str | None:
    strategy, why = _rule_of(experiment), ""
    privacy = getattr(strategy, "privacy", None)
    if isinstance(privacy, Gaussian) and privacy.noise_multiplier > 0:
        why = "privacy's noise would move what is to stay at its node"
    elif getattr(strategy, "meta_rate", 0):
        why = "FedMeta's step on the server would move what is to stay at its node"
    elif experiment.prototype.needs_server_data:
        why = "the server would predict with models that are whole at a node alone"
    own = list(experiment.training.private)
    return f"client.private={own}: {why}; set private=none, or leave that out" if why and own else None


def has_distillation(experiment: Experiment) -> bool:
    """Say whether the server distils models into each other."""
    return any(hasattr(one, "distillation") for one in (experiment.prototype, _rule_of(experiment)))


def _find_distillation_without_logits(experiment: Experiment) -> str | None:
    has_logits = isinstance(experiment.dataset.task, Classification | NextToken)
    if has_logits or not has_distillation(experiment):
        return None
    return (
        f"strategy={experiment.prototype.name}: it distils logits, and the data set's task "
        f"({type(experiment.dataset.task).__name__}) has none; choose other data, or another strategy"
    )


def _find_rows_of_sites(experiment: Experiment) -> str | None:
    if experiment.dataset.site is None or not experiment.settings.evaluation.per_node:
        return None
    own = "each site tells the server how it trained, and metrics.csv shows their mean alone"
    return f"evaluation.per_node=true: {own}; set it to false"


def _find_validation_of_sites(experiment: Experiment) -> str | None:
    size = experiment.settings.validation_size
    if experiment.dataset.site is None or not size:
        return None
    return (
        f"validation_size={size}: with dataset=local the server has no training "
        "examples to set aside; set it to 0, and stop or choose by node-test/..., not validation/..."
    )


def _find_local_evaluation(experiment: Experiment) -> str | None:
    privacy, share = getattr(experiment.prototype, "privacy", None), experiment.settings.node_test_fraction
    if not isinstance(privacy, Gaussian) or not privacy.is_local or not share:
        return None
    return (
        f"node_test_fraction={share}: with privacy=local nodes do not "
        "evaluate, since what they would tell has no noise; set node_test_fraction=0"
    )


def _find_known_noise(experiment: Experiment) -> str | None:
    privacy = getattr(experiment.prototype, "privacy", None)
    if not isinstance(privacy, Gaussian) or experiment.dataset.site is None or privacy.unseeded_noise:
        return None
    return (
        "privacy would not hold: sites with data of their own know privacy.noise_seed, or there is no "
        "noise; set privacy.noise_seed=null and privacy.noise_multiplier above 0"
    )


def _find_unjudged_models(experiment: Experiment) -> str | None:
    settings = experiment.settings
    is_unheard = getattr(getattr(experiment.prototype, "privacy", None), "is_local", False)
    if len(experiment.test_examples) or settings.node_test_fraction or is_unheard:
        return None
    return (
        f"nobody would evaluate the model: {without_test_set(settings)}, and node_test_fraction=0; let the "
        "nodes evaluate it on a share of their data, e.g. node_test_fraction=0.2"
    )


def _find_classes_without_test_set(experiment: Experiment) -> str | None:
    settings = experiment.settings
    if len(experiment.test_examples) or not settings.evaluation.per_class:
        return None
    return f"evaluation.per_class=true: {without_test_set(settings)}; set it to false"


def _find_best_of_none(experiment: Experiment) -> str | None:
    settings = experiment.settings
    if len(experiment.test_examples) or settings.save != "best" or settings.node_test_fraction:
        return None
    return "save=best: nobody tests the models, so that none is the best; set save=last"


def _find_classes_without_labels(experiment: Experiment) -> str | None:
    if not experiment.settings.evaluation.per_class or isinstance(experiment.dataset.task, Classification):
        return None
    return (
        "evaluation.per_class=true: the data set has no classes (its task is no Classification); set it"
        " to false"
    )


def _find_added_up_replies(experiment: Experiment) -> str | None:
    if experiment.clock is None or not experiment.cfg.runtime.get("partial_sums"):
        return None
    return (
        "runtime.partial_sums=true: workers add up replies before the clock says which of them come in "
        "time; set it to false, or clock=none"
    )


def _find_unfilled_round(experiment: Experiment) -> str | None:
    clock, count = experiment.clock, experiment.settings.nodes_in_round
    if clock is None or clock.keep_first is None or clock.keep_first <= count:
        return None
    return (
        f"clock.keep_first={clock.keep_first}: a round asks {count} nodes; set it to at most that, or "
        "clock.keep_first=null"
    )


# The table.


SCHEMA = "{classes:[no,yes],shape:[2],mean:[0.0,0.0],std:[1.0,1.0],dtype:float32}"
SITES = f"dataset=local model=softmax 'dataset.schema={SCHEMA}'"

NOISED = "privacy=central weighting=uniform"
STEP, PARTS, NODES = "strategies.core", "strategies.parts", "clients.app"
ASYNCHRONOUS = f"{STEP}.asynchronous.AsynchronousStrategy"
GAUSSIAN, CENTRAL = f"{PARTS}.privacy.Gaussian", f"{PARTS}.privacy.CentralPrivacy.require"
ROBUST, FAIR = f"{PARTS}.aggregation.Robust.require", f"{PARTS}.aggregation.Fair.require"


def _row(choice: str, other: str, reason: str, checked_by: str, example: str) -> Conflict:
    return Conflict(choice, other, reason, checked_by=checked_by, example=example)


CONFLICTS = (  # checked in this order
    Conflict(
        "strategy=weight_erosion_all",
        "weighting.requester=K",
        "it trains a model for each node",
        _find_replaced_requester,
        example="strategy=weight_erosion_all weighting.requester=1",
    ),
    Conflict(
        "partitioner.requester=J",
        "weighting.requester=K",
        "the model would be judged for another node",
        _find_other_requester,
        example="strategy=weight_erosion weighting.requester=1 partitioner=shifted_labels partitioner.requester=2",
    ),
    Conflict(
        "grouping.threshold=tuned, grouping.num_groups=tuned",
        "validation_size=1",
        "tuning takes one half of the examples, grouping the other",
        _find_few_validation_examples,
        example="strategy=selective grouping=kmeans grouping.num_groups=tuned validation_size=1",
    ),
    Conflict(
        "private=, personal=",
        "node_test_fraction=0",
        "a model that is whole at its node is judged there",
        _find_unjudged_own_models,
        example="private=fedper",
    ),
    Conflict(
        "private=",
        "privacy's noise, strategy=fedmeta, feddf, codistillation, selective",
        "the server would move, or judge by, what stays at the nodes",
        _find_moved_private_layers,
        example=f"private=fedper node_test_fraction=0.2 {NOISED}",
    ),
    Conflict(
        "strategy=feddf, codistillation",
        "data without classes (dataset=synthetic)",
        "there are no logits to distil",
        _find_distillation_without_logits,
        example="strategy=feddf dataset=synthetic num_nodes=20 validation_size=5",
    ),
    Conflict(
        "dataset=local",
        "evaluation.per_node=true",
        "a site tells no more than enters the mean",
        _find_rows_of_sites,
        example=f"{SITES} evaluation.per_node=true node_test_fraction=0.2",
    ),
    Conflict(
        "dataset=local",
        "validation_size above 0",
        "the server has no training examples",
        _find_validation_of_sites,
        example=f"{SITES} validation_size=5 node_test_fraction=0.2",
    ),
    Conflict(
        "privacy=local",
        "node_test_fraction above 0",
        "what a test tells has no noise",
        _find_local_evaluation,
        example="privacy=local weighting=uniform node_test_fraction=0.2",
    ),
    Conflict(
        "privacy.noise_seed, privacy.noise_multiplier=0",
        "dataset=local",
        "sites could take the noise off again",
        _find_known_noise,
        example=f"{SITES} {NOISED} privacy.noise_seed=1 node_test_fraction=0.2",
    ),
    Conflict(
        "central_test=none, dataset=local",
        "node_test_fraction=0",
        "nobody would evaluate the model",
        _find_unjudged_models,
        example="central_test=none",
    ),
    Conflict(
        "central_test=none, dataset=local",
        "evaluation.per_class=true",
        "it is measured on the server's test set",
        _find_classes_without_test_set,
        example="central_test=none node_test_fraction=0.2 evaluation.per_class=true objective=node-test/accuracy",
    ),
    Conflict(
        "central_test=none with privacy=local",
        "save=best",
        "nobody tests the models",
        _find_best_of_none,
        example="central_test=none privacy=local weighting=uniform save=best",
    ),
    Conflict(
        "data without classes (dataset=synthetic)",
        "evaluation.per_class=true",
        "there are no classes",
        _find_classes_without_labels,
        example="dataset=synthetic num_nodes=20 evaluation.per_class=true objective=test/loss",
    ),
    Conflict(
        "clock=",
        "runtime.partial_sums=true",
        "replies would be added up before they have arrived",
        _find_added_up_replies,
        example="clock=lognormal runtime=ray runtime.partial_sums=true",
    ),
    Conflict(
        "clock.keep_first=K",
        "nodes_per_round below K",
        "a round would wait for replies of nodes that it does not ask",
        _find_unfilled_round,
        example="clock=lognormal clock.keep_first=5 nodes_per_round=4",
    ),
)
REFUSED_ELSEWHERE = (
    _row(
        "strategy=fedmeta, feddf, codistillation, selective",
        "validation_size=0",
        "they learn from, or group by, these examples",
        "baselines.experiment.experiment.Experiment.strategy",
        "strategy=fedmeta",
    ),
    _row(
        "server_inputs=",
        "another strategy than feddf, codistillation",
        "it looks at no inputs without labels",
        "baselines.experiment.preflight.check_server_inputs",
        "server_inputs=digits",
    ),
    _row(
        "grouping=",
        "another strategy than selective",
        "it makes no groups",
        "baselines.experiment.experiment.strategy_of",
        "grouping=kmeans",
    ),
    _row(
        "objective=test/..., early_stopping.metric=test/...",
        "central_test=none, dataset=local",
        "the server has no test set",
        "baselines.experiment.preflight.check_metric",
        "central_test=none node_test_fraction=0.2 objective=test/loss",
    ),
    _row(
        "checkpoint_every above 0",
        "runtime=superlink with nodes that keep a state",
        "it cannot restore them",
        "baselines.engine.resume.check_resumable",
        "strategy=scaffold checkpoint_every=1 runtime=superlink",
    ),
    _row(
        "runtime.batch_clients=measured",
        "deterministic=true",
        "the clock would decide",
        "baselines.runtimes.batching.choose_batching",
        "runtime.batch_clients=measured deterministic=true",
    ),
    _row(
        "runtime.batch_clients=measured",
        "runtime=ray",
        "it is measured in one process",
        "baselines.runtimes.batching.check_elsewhere",
        "runtime=ray runtime.batch_clients=measured",
    ),
    _row(
        "strategy=fedexp, fedgma, feder, ...",
        "another option of the part that it is named for",
        "it would be another method",
        "strategies.shared.checks.require_named_part",
        "strategy=fedexp step_size=constant",
    ),
    _row(
        "mask=agreement, and, ...",
        "nodes_per_round=1",
        "a single node agrees with itself",
        f"{PARTS}.mask.Mask.require_nodes",
        "mask=and nodes_per_round=1",
    ),
    _row(
        "aggregation=median, trimmed_mean, krum, majority_vote",
        "another weighting than uniform",
        "one node has one vote",
        ROBUST,
        "aggregation=median weighting=examples",
    ),
    _row(
        "aggregation=median, trimmed_mean, krum, majority_vote",
        "step_size=extrapolated",
        "any node could make the step long",
        ROBUST,
        "aggregation=median weighting=uniform step_size=extrapolated",
    ),
    _row(
        "aggregation=krum",
        "few nodes in a round",
        "it needs 2 num_hostile + 3",
        f"{PARTS}.aggregation.Krum.require",
        "aggregation=krum weighting=uniform nodes_per_round=2",
    ),
    _row(
        "aggregation=fair",
        "another weighting than uniform, examples",
        "it weighs nodes by their loss",
        FAIR,
        "aggregation=fair weighting=inverse_variance",
    ),
    _row(
        "aggregation=fair",
        "step_size=extrapolated",
        "both set the length of the step",
        FAIR,
        "aggregation=fair step_size=extrapolated",
    ),
    _row(
        "privacy=",
        "another weighting than uniform",
        "weights may follow the nodes' data",
        f"{GAUSSIAN}.require",
        "privacy=central",
    ),
    _row(
        "privacy=",
        "aggregation=fair, normalized",
        "nodes would also send what gets no noise",
        f"{GAUSSIAN}.require",
        f"{NOISED} aggregation=fair",
    ),
    _row(
        "privacy=",
        "strategy=scaffold, mimelite",
        "nodes would also send what gets no noise",
        f"{GAUSSIAN}.check",
        f"{NOISED} strategy=scaffold",
    ),
    _row(
        "privacy=",
        "a model with batch normalisation",
        "running statistics get no noise",
        f"{GAUSSIAN}.check",
        f"{NOISED} model=resnet18",
    ),
    _row(
        "privacy=",
        "strategy=selective, local, codistillation, weight_erosion_all, ifca, hypcluster, fedproto",
        "a group's model shows who is in it",
        f"{PARTS}.privacy.refuse_groups",
        "strategy=selective privacy=local weighting=uniform validation_size=50",
    ),
    _row(
        "privacy=",
        "strategy=power_of_choice, oort",
        "nodes' losses, which get no noise, decide who trains",
        f"{PARTS}.privacy.raise_no_guarantee",
        f"{NOISED} strategy=power_of_choice",
    ),
    _row(
        "privacy=central, adaptive",
        "another aggregation than mean",
        "it is no sum",
        CENTRAL,
        f"{NOISED} aggregation=median",
    ),
    _row(
        "privacy=central, adaptive",
        "mask=",
        "it looks at the updates before they have their noise",
        CENTRAL,
        f"{NOISED} mask=agreement",
    ),
    _row(
        "privacy=central, adaptive",
        "another step size than constant",
        "it looks at the updates before they have their noise",
        CENTRAL,
        f"{NOISED} step_size=extrapolated",
    ),
    _row(
        "privacy=central, adaptive",
        "participation.max_norm",
        "it looks at the updates before they have their noise",
        f"{STEP}.pseudo_gradient.PseudoGradientStrategy.__post_init__",
        f"{NOISED} participation.max_norm=10",
    ),
    _row(
        "strategy=feddyn",
        "privacy=, compression=",
        "what a node keeps would not fit what the server has",
        "strategies.feddyn.FedDyn.__post_init__",
        "strategy=feddyn compression=top_k",
    ),
    _row(
        "strategy=scaffnew",
        "another part than uniform weights and FedAvg's, participation.dropout, nodes_per_round",
        "it needs the plain mean of all nodes",
        "strategies.scaffnew.Scaffnew.__post_init__",
        "strategy=scaffnew mask=agreement",
    ),
    _row(
        "strategy=scaffnew",
        "another optimiser than SGD without momentum",
        "a node's change would not be a sum of gradients",
        "clients.methods.scaffnew.LocalVariate.check",
        "strategy=scaffnew client_optimizer=adam",
    ),
    _row(
        "strategy=scaffnew",
        "client.stragglers above 0",
        "it draws how many steps all nodes take",
        f"{NODES}.check_training",
        "strategy=scaffnew client.stragglers=0.5 client.local_epochs=2",
    ),
    _row(
        "strategy=feddf",
        "privacy=central, adaptive",
        "the noise comes to the sum alone, and each node's model teaches",
        "strategies.feddf.FedDF.__post_init__",
        f"strategy=feddf validation_size=50 {NOISED}",
    ),
    _row(
        "strategy=codistillation",
        "strategy.inner.average_last above 1",
        "these are the models before they are distilled",
        "strategies.codistillation.CoDistillation.__post_init__",
        "strategy=codistillation validation_size=50 strategy.inner.average_last=2",
    ),
    _row(
        "strategy=fedbuff, fedasync",
        "runtime=superlink with another clock than none",
        "real nodes take their own time",
        "baselines.engine.rounds.require_clock",
        "strategy=fedbuff runtime=superlink",
    ),
    _row(
        "strategy=fedbuff, fedasync with clock=none",
        "runtime=inline, ray",
        "simulated nodes have no time of their own",
        "baselines.engine.rounds.require_clock",
        "strategy=fedasync clock=none",
    ),
    _row(
        "strategy=fedbuff, fedasync",
        "quorum=",
        "they wait for their buffer, not for a round's replies",
        "baselines.engine.rounds.require_clock",
        "strategy=fedbuff clock=none runtime=superlink quorum=2 round_deadline=9",
    ),
    _row(
        "strategy=fedbuff, fedasync",
        "clock.deadline, clock.keep_first, privacy=, participation.max_norm",
        "these act on synchronous rounds",
        f"{ASYNCHRONOUS}.__post_init__",
        "strategy=fedbuff clock.deadline=10",
    ),
    _row(
        "strategy=fedbuff, fedasync",
        "strategy.inner= of selective, local",
        "they have a clock of their own, and groups share a round",
        f"{ASYNCHRONOUS}.for_group",
        "strategy=local strategy.inner._target_=strategies.FedBuff",
    ),
    _row(
        "staleness=",
        "another strategy than fedbuff, fedasync",
        "it has no stale updates",
        "baselines.experiment.experiment.strategy_of",
        "staleness=hinge",
    ),
    _row(
        "strategy=fedcm",
        "privacy=",
        "its momentum would have no noise",
        "strategies.fedcm.FedCM.__post_init__",
        "strategy=fedcm privacy=central",
    ),
    _row(
        "strategy=fedcm, mimelite",
        "another optimiser than SGD without momentum",
        "the strategy sends the momentum of the nodes' steps",
        "clients.methods.fedcm.ClientMomentum.check",
        "strategy=fedcm client_optimizer=adam",
    ),
    _row(
        "strategy=ifca, hypcluster",
        "weighting=agnostic, erosion",
        "it remembers each node's weight in one model",
        "strategies.ifca.IFCA.__post_init__",
        "strategy=ifca weighting=agnostic",
    ),
    _row(
        "strategy=ifca, hypcluster",
        "strategy.average_last above 1",
        "each of the models is evaluated as it is",
        "strategies.ifca.IFCA.__post_init__",
        "strategy=ifca strategy.average_last=2",
    ),
    _row(
        "strategy=fedproto",
        "a model without an nn.Linear layer, data without labels (dataset=synthetic)",
        "it needs what the last one is given, by class",
        "clients.methods.fedproto.PrototypeDistance.check_model",
        "strategy=fedproto dataset=synthetic num_nodes=20",
    ),
    _row(
        "strategy=scaffold, scaffnew, feddyn, fedcm, mimelite",
        "private=",
        "a private part has no counterpart at other nodes",
        f"{NODES}.check_training",
        "strategy=scaffold private=fedper node_test_fraction=0.2",
    ),
    _row(
        "strategy=scaffold's option 2, aggregation=normalized",
        "another optimiser than plain SGD",
        "a node's change would not be a sum of gradients",
        "clients.methods.scaffold.ControlVariate.check",
        "strategy=scaffold client_optimizer=adam",
    ),
    _row(
        "strategy=scaffold's option 2, scaffnew, fedcm, aggregation=normalized",
        "corrections=own_initial_model",
        "the change from the server's model is treated as gradients",
        f"{NODES}._check_displacement",
        "strategy=scaffold corrections=own_initial_model",
    ),
    _row(
        "strategy=fedprox, ...",
        "corrections= of the same kind",
        "it would act twice",
        f"{NODES}.check_training",
        "strategy=fedprox corrections=proximal",
    ),
    _row(
        "corrections=fedlc",
        "corrections=fedrs",
        "each replaces the loss",
        "clients.training.require_one_loss",
        "corrections=[fedlc,fedrs]",
    ),
    _row(
        "corrections=fedlc, fedrs, fedntd",
        "data without labels (dataset=synthetic)",
        "they look at the labels of a node's examples",
        "clients.methods.fedlc.require_labels",
        "corrections=fedlc dataset=synthetic num_nodes=20",
    ),
    _row(
        "corrections=moon, feddecorr",
        "a model without an nn.Linear layer (dataset=synthetic)",
        "they look at what its last one is given",
        "clients.methods.moon.find_last_linear",
        "corrections=feddecorr dataset=synthetic num_nodes=20",
    ),
    _row(
        "compression=random_mask, low_rank",
        "client.keep_optimizer=true",
        "the optimiser's state would add to a node's change",
        f"{NODES}._check_displacement",
        "compression=random_mask client_optimizer=adam client.keep_optimizer=true",
    ),
    _row(
        "compression=random_mask, low_rank",
        "corrections=own_initial_model",
        "only a share of the change would be sent",
        f"{NODES}._check_displacement",
        "compression=random_mask corrections=own_initial_model",
    ),
    _row(
        "compression.error_feedback=true",
        "aggregation=normalized with client.stragglers above 0",
        "what was left out would be weighed by another round's steps",
        f"{NODES}.check_training",
        "compression=top_k aggregation=normalized client.stragglers=0.5 client.local_epochs=2",
    ),
    _row(
        "personal=ditto",
        "corrections=own_initial_model",
        "the node's model is kept near the one it was sent",
        f"{NODES}._check_displacement",
        "personal=ditto corrections=own_initial_model node_test_fraction=0.2",
    ),
    _row(
        "personal=ditto",
        "private=",
        "its nodes keep whole models",
        "clients.methods.ditto.Ditto.check",
        "personal=ditto private=fedper node_test_fraction=0.2",
    ),
    _row(
        "personal=apfl",
        "private=",
        "its nodes keep whole models",
        "clients.methods.apfl.APFL.check",
        "personal=apfl private=fedper node_test_fraction=0.2",
    ),
    _row(
        "client=keep_trace",
        "another optimiser than plain SGD",
        "it differentiates through plain steps",
        "clients.methods.uga.KeepTrace.__post_init__",
        "client=keep_trace client_optimizer=adam",
    ),
    _row(
        "client=keep_trace",
        "corrections=, personal=",
        "it differentiates through plain steps",
        "clients.methods.uga.KeepTrace.__post_init__",
        "client=keep_trace corrections=proximal",
    ),
    _row(
        "client=keep_trace",
        "strategy=scaffold, scaffnew, fedprox, feddyn, fedcm, mimelite, ifca, hypcluster, fedproto; "
        "compression=random_mask, low_rank",
        "it differentiates through plain steps",
        f"{NODES}.check_training",
        "client=keep_trace strategy=fedprox",
    ),
)
ONE_BY_ONE = (  # not refused, but these nodes train one by one
    *OBSTACLES,
    Conflict(
        "corrections=moon, fedsam, fedlc, ...; strategy=fedproto",
        BATCH_OPTION,
        "a correction adds to the loss, or takes the gradient elsewhere",
        checked_by="clients.batched.stack.ModelStack.train",
    ),
    Conflict(
        "corrections=inexact",
        BATCH_OPTION,
        "a correction may end a node's round",
        checked_by="clients.batched.stack.ModelStack.train",
    ),
)


# The table in the documentation.


SETTING = r"[a-z_.]+=\w+|\b[a-z]+[._][a-z_.]+\b"
PAGE = ROOT / "docs" / "reference" / "combinations.md"
MARKED = re.compile(
    r"(<!-- compatibility: python -m baselines.experiment.compatibility -->\n).*?(<!-- end -->)", re.S
)


def page_with_table(text: str) -> str:
    """Return a page with the table put between its two marks."""
    return MARKED.sub(lambda marks: f"{marks[1]}{format_table()}\n{marks[2]}", text)


def format_table() -> str:
    """Return the rows in Markdown: what is refused, and what trains its nodes one by one."""
    refused = _format_rows(
        ("choice", "does not go with", "because"),
        ((_code(one.choice), _code(one.other), one.reason) for one in (*CONFLICTS, *REFUSED_ELSEWHERE)),
    )
    alone = _format_rows(
        ("nodes train one by one with", "because"), ((_code(one.choice), one.reason) for one in ONE_BY_ONE)
    )
    return f"\n{refused}\n\nNothing is refused here, whatever `{BATCH_OPTION}` says:\n\n{alone}\n"


def _format_rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines: Iterator[tuple[str, ...]] = (row for row in (head, tuple("---" for _ in head), *sorted(rows)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(choices: str) -> str:
    """Mark up as code, in a list of choices, each single word and each setting within a phrase."""
    parts = re.split(r"([,;] )", choices)
    return "".join(
        f"`{part}`" if re.fullmatch(r"[\w.=/]*\w=?", part) else re.sub(SETTING, r"`\g<0>`", part)
        for part in parts
    )


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
