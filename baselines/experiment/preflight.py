"""Find a mistake before anything is started."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import MISSING, fields, replace

import torch
from torch import Tensor, nn

from baselines.errors import UserError
from clients import Classification, Examples, private
from clients.app import check_training
from clients.evaluation import BATCH_SIZE
from clients.examples import Inputs, apply_to_each, compute_outputs, tensors_of
from strategies import WeightErosionForAll
from strategies.core.pseudo_gradient import PseudoGradientStrategy
from strategies.grouped import StrategyWrapper
from strategies.parts.clustering import Grouping
from strategies.parts.layout import Layout
from strategies.parts.privacy import Gaussian
from strategies.parts.weighting import EACH, Erosion
from strategies.shared import protocol
from strategies.shared.compression import NoCompression

from .config import NODE_CORRECTIONS, choices
from .data import check_rows
from .device import deterministic_algorithms
from .experiment import Experiment
from .messages import warn_once
from .settings import Settings

# What a strategy promises of any model and any node: would it be kept for these?


KNOWN = {value for name, value in vars(protocol).items() if name.isupper() and isinstance(value, str)}


def check_promises(this: Experiment, layout: object) -> None:
    """Refuse what would be passed over without a word; ``layout`` is what the strategy makes of the model.

    Raises
    ------
    UserError : for something asked that no node does, and for arrays of the model that would not be treated
        as the strategy says
    """
    strategy = this.prototype
    answered = KNOWN.union(*({kind.config_key, *kind.reads} for kind in this.known_corrections))
    for key in strategy.train_config():
        if key not in answered and not key.startswith(protocol.COMPRESSION):
            raise UserError(
                f"{strategy.name} asks nodes for {key!r}, which no correction reads: name its class in the "
                f"strategy's file, {NODE_CORRECTIONS}: [{{_target_: ...}}], and the key as its config_key or "
                "in its reads"
            )
    rule, key = strategy, "strategy.buffer_names"
    if isinstance(strategy, StrategyWrapper):
        rule, key = strategy.inner, "strategy.inner.buffer_names"
    if not isinstance(rule, PseudoGradientStrategy):
        return
    _warn_of_parts(rule, this.overrides)
    if isinstance(layout, Layout):
        if type(rule.compression) is not NoCompression:
            _check_compressed(this.node_model)
        _check_buffers(this.node_model, layout, rule.buffer_names, key)


def _warn_of_parts(rule: PseudoGradientStrategy, overrides: str) -> None:
    """Say which of its own parts a user's class has lost to the usual one, which nobody chose."""
    if type(rule).__module__.startswith("strategies."):  # their files choose what they name
        return
    taken, usual = choices(overrides), choices("")
    said = {re.split("[@=]", override.lstrip("+"))[0] for override in shlex.split(overrides)}
    for part in fields(rule):
        group, own = part.name, part.default
        if group in said or group not in usual or taken[group] != usual[group] or own is MISSING:
            continue
        if type(own) is not type(getattr(rule, group)):
            chosen, line = f"{group}={usual[group]}", f"- override /{group}@_global_.{group}: ..."
            warn_once(
                f"{rule.name} runs with {chosen}, not with its own {type(own).__name__}: choose that in "
                f"the strategy's file ({line}), or say {chosen}"
            )


def tied_parameters(model: nn.Module) -> list[str]:
    """Return the further names of trained parameters that have several."""
    named = model.named_parameters(remove_duplicate=False)
    names = [name for name, p in named if p.requires_grad]
    return sorted(set(names) - {name for name, _ in model.named_parameters()})


def _check_compressed(model: nn.Module) -> None:
    """Refuse a parameter of two names: one would be compressed, and the other would undo it."""
    if twice := tied_parameters(model):
        raise UserError(
            f"the model's {twice[0]} is a parameter under a second name, which would be sent as it is: "
            "choose a model without shared parameters, or compression=none"
        )


def _check_buffers(model: nn.Module, layout: Layout, names: Iterable[str], key: str) -> None:
    """Refuse a buffer that the update rule would take for a parameter."""
    trained = {layer.name for layer in layout.parameters}
    if wrong := [name for name, _ in model.named_buffers() if name in trained]:
        listed = ",".join([*names, *dict.fromkeys(name.rpartition(".")[2] for name in wrong)])
        raise UserError(
            f"the model's buffer {wrong[0]} would be masked and optimised as a parameter is: name it, "
            f"+{key}=[{listed}]"
        )


# Single examples: a batch of one, as the last of an epoch may be, on which a model has to work, too.
#
# Batch normalisation cannot train on one, and a ``squeeze()`` takes the batch for a dimension too many. A
# node that has such a batch would fail in every round.


def check_single_examples(this: Experiment, example: Inputs, target: Tensor) -> None:
    """Refuse a model that fails on one ``example``, [1, ...], where some node or test has a batch of one.

    Raises
    ------
    UserError : in one line that names the first such node, or the test set
    """
    if this.dataset.site is not None:  # nobody here knows how many rows a site has
        return
    size, dealt = this.training.batch_size, this.partitions
    trains = [k for k, (train, _) in enumerate(dealt) if _has_single(len(train), size)]
    sizes = {"the test set": len(this.test_examples), "the validation set": this.settings.validation_size}
    sizes |= {f"node {k}'s test set": len(test) for k, (_, test) in enumerate(dealt)}
    tests = [name for name, count in sizes.items() if _has_single(count, BATCH_SIZE)]
    if trains and (error := _error(this, example, target, is_training=True)):
        raise UserError(
            f"client.batch_size={size} leaves node {trains[0]} ({len(trains)} of "
            f"{this.settings.num_nodes} nodes) a batch of one example, on which {_why(error)}: choose "
            f"another client.batch_size, or {_other(error)}"
        ) from error
    if tests and (error := _error(this, example, target, is_training=False)):
        raise UserError(
            f"{tests[0]} ends with a batch of one example, on which {_why(error)}: {_other(error)}"
        ) from error


def _error(this: Experiment, example: Inputs, target: Tensor, is_training: bool) -> Exception | None:
    """Return what a fresh model, or the task, raises on one example; None where both can do with it."""
    with torch.random.fork_rng(), torch.no_grad():
        model = this.model().to(tensors_of(example)[0].device).train(is_training)
        try:
            this.dataset.task(compute_outputs(model, example), target)
        except Exception as error:  # whatever a forward of the user's own raises
            return error
    return None


def _is_of_normalisation(error: Exception) -> bool:
    return "more than 1 value per channel" in str(error)


def _why(error: Exception) -> str:
    if _is_of_normalisation(error):
        return "the model's batch normalisation cannot be trained"
    return f"the model fails ({type(error).__name__}: {' '.join(str(error).split())})"


def _other(error: Exception) -> str:
    if _is_of_normalisation(error):
        return "a model without"
    return (
        "correct the model: of one example it returns [1, ...], which squeeze() without a dimension breaks"
    )


def _has_single(count: int, batch_size: int | None) -> bool:
    """Say whether one of the batches of so many examples holds a single one."""
    return count == 1 or (batch_size is not None and count % batch_size == 1 % batch_size)


# Metrics: is what early stopping and the objective go by measured at all?


USUAL = "test/accuracy"  # the objective that nobody has chosen; some data have no accuracy
BY_TASK = ("test", "validation")  # the splits whose metrics are the task's and no others


def without_test_set(settings: Settings) -> str:
    """Say that the server has no test set, and what decided that."""
    reason = "central_test=none" if settings.central_test == "none" else "all data lie at the nodes"
    return f"the server has no test set ({reason})"


def check_metric(told: Settings, metrics: Iterable[str], *, has_test_set: bool) -> None:
    """Refuse the name of a metric that the task, which gives ``metrics``, does not measure.

    Raises
    ------
    UserError : for one of the test or the validation set; nodes may tell what they like
    """
    asked = {} if told.objective == USUAL else {"objective": told.objective}
    if told.early_stopping.patience is not None:
        asked["early_stopping.metric"] = told.early_stopping.metric
    known = sorted(name.replace("-", "_") for name in metrics)
    for key, name in asked.items():
        split, _, metric = name.partition("/")
        if split == "test" and not has_test_set:
            raise UserError(f"{key}={name}: {without_test_set(told)}; set e.g. node-test/accuracy")
        if split in BY_TASK and metric not in known:
            ways = " or ".join(f"{split}/{one}" for one in known)
            raise UserError(f"{key}={name} is not measured: expected {ways}")


# The model on two examples: does it take the data, and can the task use what it returns?


def check_model(this: Experiment) -> None:
    """Let the model see two examples, and the task what it says of them.

    Raises
    ------
    UserError : in one line, for a model that does not fit the data or the task, and one that cannot learn
    """
    inputs, targets = _sound_examples(this)
    outputs = _outputs(this, inputs)
    if isinstance(this.dataset.task, Classification):
        _check_labels(this, _classes(outputs))
    elif this.settings.evaluation.per_class:
        raise UserError(
            "evaluation.per_class=true: the data set has no classes (its task is no Classification); set it"
            " to false"
        )
    try:
        _, metrics = this.dataset.task(outputs, targets)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UserError(f"the data set's task cannot use what the model returns: {error}") from error
    check_single_examples(this, apply_to_each(lambda values: values[:1], inputs), targets[:1])
    check_metric(this.settings, metrics, has_test_set=len(this.test_examples) > 0)


def _sound_examples(this: Experiment) -> tuple[Inputs, Tensor]:
    try:
        inputs, targets = two_examples(this)
    except RuntimeError as error:  # a mean for two channels where there is one
        said = f"the data set's transform does not take its inputs: {error}"
        raise UserError(f"{said}; correct dataset.load, e.g. its mean and std") from error
    if not all(bool(values.isfinite().all()) for values in tensors_of(inputs)):
        raise UserError(
            "the data set's inputs have NaN or infinite values: correct dataset.load, its mean and std"
        )
    return inputs, targets


def _outputs(this: Experiment, inputs: Inputs) -> Tensor:
    """Return what the model says of two examples; a task of the user's own may take something else."""
    model = this.node_model.eval()
    if not any(p.requires_grad for p in model.parameters()):
        raise UserError("the model has no parameter to train: choose another model, or let one learn")
    try:
        with torch.no_grad():
            outputs: Tensor = compute_outputs(model, inputs)
    except Exception as error:  # whatever a forward of the user's own raises
        usual = isinstance(error, RuntimeError | ValueError | TypeError | IndexError) and str(error)
        shape = apply_to_each(lambda values: tuple(values.shape[1:]), inputs)
        dtype = apply_to_each(lambda values: values.dtype, inputs)
        said = error if usual else f"{type(error).__name__}: {error}"
        raise UserError(
            f"the model does not take the data set's inputs of shape {shape} and dtype {dtype} ({said}): "
            f"choose another model or dataset{_with_setting(this, 'input_shape', ', or do not set {}')}"
        ) from error
    return outputs


def _classes(outputs: Tensor) -> int:
    """Return how many classes a model's outputs stand for."""
    if not isinstance(outputs, Tensor):
        raise UserError(
            f"the model returns a {type(outputs).__name__}: expected a tensor [examples, classes]"
        )
    if outputs.ndim < 2:
        raise UserError(f"the model returns a tensor {list(outputs.shape)}: expected [examples, classes]")
    return outputs.shape[1]


def two_examples(this: Experiment) -> tuple[Inputs, Tensor]:
    """Return two examples of the test set; where the sites have all data, two of zeros."""
    data = this.dataset
    if data.site is None:
        judged = this.test_examples
        if len(judged) == 0:  # central_test=none
            judged = replace(judged, index=torch.arange(len(data.test_targets)))
        return judged.batch(slice(0, 2), this.device)
    inputs = torch.zeros(2, *data.test_inputs.shape[1:], dtype=data.test_inputs.dtype)
    targets = torch.zeros(2, dtype=torch.int64)
    return Examples(inputs, targets, torch.arange(2), data.transform).batch(slice(None), this.device)


def _with_setting(this: Experiment, name: str, advice: str, otherwise: str = "") -> str:
    """Return advice with a setting of the model in it; ``otherwise`` where the model does not have it."""
    return advice.format(f"model.{name}") if name in this.cfg.model else otherwise


def _check_labels(this: Experiment, classes: int) -> None:
    """Refuse labels that a model's ``classes`` outputs do not stand for."""
    if this.dataset.site is not None:
        known = this.dataset.num_classes
        if known is not None and classes < known:
            raise UserError(
                f"the model has {classes} classes, and the schema {known}: "
                f"{_with_setting(this, 'num_classes', 'correct {}', 'choose another model')}"
            )
        return
    for name in ("train_targets", "test_targets"):
        labels = getattr(this.dataset, name)
        if len(labels) == 0:
            raise UserError(f"{name} are empty: correct the data set")
        low, high = int(labels.min()), int(labels.max())
        if labels.dtype != torch.int64 or low < 0 or high >= classes:
            raise UserError(
                f"{name} are {low} to {high}, {labels.dtype}, and the model has {classes} classes: "
                "expected int64 labels from 0 on; correct the data set"
                f"{_with_setting(this, 'num_classes', ', or {}')}"
            )


def check(this: Experiment) -> None:
    """Build everything once, and let the model see two examples.

    Raises
    ------
    UserError : for parts that cannot go together, in one line
    """
    with deterministic_algorithms(this.deterministic):
        _check(this)


def _check(this: Experiment) -> None:
    try:
        strategy = this.prototype
        layout = strategy.check(this.initial_arrays())
        check_training(this.training, strategy.train_config(), this.known_corrections)
        private.check(this.node_model, this.training.private)
        if this.training.personal is not None:
            this.training.personal.check(this.node_model, this.training.private)
    except ValueError as error:
        raise UserError(str(error)) from error
    check_promises(this, layout)
    _check_requester(this)
    _check_grouping(this)
    _warn_of_corrections(this)
    _check_own_models(this)
    _check_private(this)
    if this.dataset.site is None:
        _check_node_tests(this)
    else:
        _check_sites(this.settings)
    _check_privacy(this)
    check_rows(this.dataset, is_tested=this.settings.central_test == "all")
    if len(this.test_examples) == 0:
        _check_without_test_set(this)
    if this.deterministic:
        _check_deterministic(this)
    check_model(this)


def _check_requester(this: Experiment) -> None:
    """Refuse a requester that would be replaced, and models that would be judged for another node."""
    strategy, for_all = this.prototype, isinstance(this.prototype, WeightErosionForAll)
    weighting = getattr(getattr(strategy, "inner", strategy), "weighting", None)
    if not isinstance(weighting, Erosion):
        return
    requester = this.cfg.strategy.inner.weighting.requester if for_all else weighting.requester
    if for_all and requester != EACH:
        raise UserError(
            f"weighting.requester={requester}: strategy=weight_erosion_all trains a model for each node; "
            f"leave it out, set it to {EACH}, or choose strategy=weight_erosion"
        )
    judged = getattr(this.partitioner, "requester", None)
    if judged not in (None, requester):
        raise UserError(
            f"partitioner.requester={judged}: the model for weighting.requester={requester} would be "
            "judged on another node's test examples; set both alike, or partitioner.requester=null"
        )


def _warn_of_corrections(this: Experiment) -> None:
    """Name corrections that cannot do anything; a site may have few examples, or many."""
    few_or_many = [1, 10**9]
    sizes = [len(train) for train, _ in this.partitions] if this.dataset.site is None else few_or_many
    for line in this.training.idle_corrections(sizes):
        warn_once(line)


def _check_grouping(this: Experiment) -> None:
    """Refuse fewer validation examples than the grouping takes."""
    grouping, size = getattr(this.prototype, "grouping", None), this.settings.validation_size
    if (
        isinstance(grouping, Grouping)
        and this.prototype.needs_validation
        and size < grouping.least_examples
    ):
        raise UserError(
            f"validation_size={size}: {type(grouping).__name__} is tuned on one half of the validation "
            "examples and groups by the other; set validation_size to 2 or more"
        )


def _check_node_tests(this: Experiment) -> None:
    """Deal the data, and refuse nodes that are to test and have nothing to do it with."""
    told, dealt = this.settings, this.partitions
    if told.node_test_fraction and not any(len(test) for _, test in dealt):
        raise UserError(
            f"node_test_fraction={told.node_test_fraction} leaves no node of {told.num_nodes} an example "
            "to test on: raise it, or set it to 0"
        )


def _check_sites(told: Settings) -> None:
    """Refuse what the server cannot have where the sites have all data."""
    if told.evaluation.per_node:
        own = "each site tells the server how it trained, and metrics.csv shows their mean alone"
        raise UserError(f"evaluation.per_node=true: {own}; set it to false")
    if told.validation_size:
        raise UserError(
            f"validation_size={told.validation_size}: with dataset=local the server has no training "
            "examples to set aside; set it to 0, and stop or choose by node-test/..., not validation/..."
        )


def _check_own_models(this: Experiment) -> None:
    """Refuse models that are whole at the nodes alone where the nodes are to evaluate none."""
    training, own = this.training, ""
    if training.private:
        own = f"client.private={list(training.private)}"
    elif training.personal is not None:
        own = f"client.personal={type(training.personal).__name__}"
    if own and not this.settings.node_test_fraction:
        raise UserError(
            f"{own}: the model is whole at a node alone, which is to evaluate it on a share of its data: "
            "set node_test_fraction above 0, e.g. 0.2"
        )


def _check_private(this: Experiment) -> None:
    """Refuse private layers under what would move them on the server, or judge models without them."""
    strategy, why = getattr(this.prototype, "inner", this.prototype), ""
    privacy = getattr(strategy, "privacy", None)
    if isinstance(privacy, Gaussian) and privacy.noise_multiplier > 0:
        why = "privacy's noise would move what is to stay at its node"
    elif getattr(strategy, "meta_rate", 0):
        why = "FedMeta's step on the server would move what is to stay at its node"
    elif this.prototype.needs_validation:
        why = "the server groups the nodes by models that are whole at a node alone"
    if why and (own := list(this.training.private)):
        raise UserError(f"client.private={own}: {why}; set private=none, or leave that out")


def _check_without_test_set(this: Experiment) -> None:
    """Refuse models that nobody judges, and what needs a test set on the server."""
    told, none = this.settings, without_test_set(this.settings)
    if not told.node_test_fraction and not _is_unheard(this):
        raise UserError(
            f"nobody would evaluate the model: {none}, and node_test_fraction=0; let the nodes evaluate it "
            "on a share of their data, e.g. node_test_fraction=0.2"
        )
    if told.evaluation.per_class:
        raise UserError(f"evaluation.per_class=true: {none}; set it to false")
    if told.save == "best" and not told.node_test_fraction:
        raise UserError("save=best: nobody tests the models, so that none is the best; set save=last")


def _is_unheard(this: Experiment) -> bool:
    """Say whether the nodes evaluate for nobody, whatever they hold."""
    return bool(getattr(getattr(this.prototype, "privacy", None), "is_local", False))


def _check_privacy(this: Experiment) -> None:
    """Refuse what a node would tell without noise, and noise that somebody could take off again."""
    privacy = getattr(this.prototype, "privacy", None)
    if not isinstance(privacy, Gaussian):
        return
    if privacy.is_local and this.settings.node_test_fraction:
        raise UserError(
            f"node_test_fraction={this.settings.node_test_fraction}: with privacy=local nodes do not "
            "evaluate, since what they would tell has no noise; set node_test_fraction=0"
        )
    if not privacy.is_local and privacy.noise_multiplier > 0:
        _check_noised(this.node_model)
    if this.dataset.site is not None and not privacy.unseeded_noise:
        raise UserError(
            "privacy would not hold: sites with data of their own know privacy.noise_seed, or there is no "
            "noise; set privacy.noise_seed=null and privacy.noise_multiplier above 0"
        )


def _check_noised(model: nn.Module) -> None:
    """Refuse parameters that the server's noise would move apart."""
    if tied := tied_parameters(model):
        raise UserError(
            f"the model's {tied[0]} is a parameter under a second name, and each would get its own noise: "
            "choose a model without shared parameters, or privacy=none"
        )


def _check_deterministic(this: Experiment) -> None:
    """Refuse a model of which one training step has no deterministic algorithm."""
    try:
        inputs, targets = two_examples(this)
        with torch.random.fork_rng():
            model = this.model().train()
            loss, _ = this.dataset.task(compute_outputs(model, inputs), targets)
            torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
    except Exception as error:  # whatever else is wrong is found without it, and told below
        if "deterministic" not in str(error):
            return
        first = " ".join(str(error).split()).partition(". ")[0]
        raise UserError(
            f"deterministic=true, but the model has no deterministic algorithm ({first}): choose another "
            "model, device=cpu, or deterministic=false"
        ) from error
