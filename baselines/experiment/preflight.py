"""Preflight: find mistakes before anything is started."""

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
from clients.round import requested_corrections
from clients.training import check_model as check_corrections_model
from strategies.core.pseudo_gradient import PseudoGradientStrategy
from strategies.grouped import StrategyWrapper
from strategies.parts.layout import Layout
from strategies.parts.privacy import Gaussian
from strategies.shared import protocol
from strategies.shared.compression import NoCompression

from .compatibility import check_compatibility, has_distillation, without_test_set
from .config import NODE_CORRECTIONS, choices
from .data import check_rows
from .device import deterministic_algorithms
from .experiment import VALIDATION_ERROR, Experiment
from .messages import warn_once
from .validation import Settings

# What a strategy promises of any model and node: does it hold for these?


KNOWN_KEYS = {value for name, value in vars(protocol).items() if name.isupper() and isinstance(value, str)}


def check_promises(experiment: Experiment, layout: object) -> None:
    """Refuse what would be silently ignored; ``layout`` is the strategy's layout of the model.

    Raises
    ------
    UserError : for a request that no node answers, and for arrays of the model that the strategy would
        treat wrongly
    """
    strategy = experiment.prototype
    answered = KNOWN_KEYS.union(*({kind.config_key, *kind.reads} for kind in experiment.known_corrections))
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
    _warn_of_parts(rule, experiment.overrides)
    if isinstance(layout, Layout):
        if type(rule.compression) is not NoCompression:
            what, other = "would be sent as it is", "compression=none"
            _check_tied(experiment.node_model, what, other)
        if has_distillation(experiment):
            _check_tied(experiment.node_model, "would be distilled by itself", "strategy=fedavg")
        _check_buffers(experiment.node_model, layout, rule.buffer_names, key)


def _warn_of_parts(rule: PseudoGradientStrategy, overrides: str) -> None:
    """Warn of parts of a user's strategy that are replaced by the usual ones, which nobody chose."""
    if type(rule).__module__.startswith("strategies."):  # the suite's files choose their parts
        return
    taken, usual = choices(overrides), choices("")
    overridden = {re.split("[@=]", override.lstrip("+"))[0] for override in shlex.split(overrides)}
    for part in fields(rule):
        group, own = part.name, part.default
        if group in overridden or group not in usual or taken[group] != usual[group] or own is MISSING:
            continue
        if type(own) is not type(getattr(rule, group)):
            chosen, line = f"{group}={usual[group]}", f"- override /{group}@_global_.{group}: ..."
            warn_once(
                f"{rule.name} runs with {chosen}, not with its own {type(own).__name__}: choose that in "
                f"the strategy's file ({line}), or say {chosen}"
            )


def tied_parameters(model: nn.Module) -> list[str]:
    """Return the additional names of trained parameters that have several."""
    named = model.named_parameters(remove_duplicate=False)
    names = [name for name, p in named if p.requires_grad]
    return sorted(set(names) - {name for name, _ in model.named_parameters()})


def _check_tied(model: nn.Module, what: str, other: str) -> None:
    """Refuse a parameter with two names: compressing or distilling one would be undone by the other."""
    if twice := tied_parameters(model):
        raise UserError(
            f"the model's {twice[0]} is a parameter under a second name, which {what}: choose a model "
            f"without shared parameters, or {other}"
        )


def _check_buffers(model: nn.Module, layout: Layout, names: Iterable[str], key: str) -> None:
    """Refuse a buffer that the update rule would treat as a parameter."""
    trained = {layer.name for layer in layout.parameters}
    if wrong := [name for name, _ in model.named_buffers() if name in trained]:
        listed = ",".join([*names, *dict.fromkeys(name.rpartition(".")[2] for name in wrong)])
        raise UserError(
            f"the model's buffer {wrong[0]} would be masked and optimised as a parameter is: name it, "
            f"+{key}=[{listed}]"
        )


# Single examples: a model must also work on a batch of one, such as the last of an epoch.
#
# Batch normalisation cannot train on one, and ``squeeze()`` also removes the batch dimension. A node with
# such a batch would fail in every round.


def check_single_examples(experiment: Experiment, example: Inputs, target: Tensor) -> None:
    """Refuse a model that fails on one ``example``, [1, ...], where some node or test has a batch of one.

    Raises
    ------
    UserError : in one line that names the first such node, or the test set
    """
    if experiment.dataset.site is not None:  # the number of a site's rows is unknown here
        return
    size, dealt = experiment.training.batch_size, experiment.partitions
    trains = [k for k, (train, _) in enumerate(dealt) if _has_single(len(train), size)]
    sizes = {
        "the test set": len(experiment.test_examples),
        "the validation set": experiment.settings.validation_size,
    }
    sizes |= {f"node {k}'s test set": len(test) for k, (_, test) in enumerate(dealt)}
    tests = [name for name, count in sizes.items() if _has_single(count, BATCH_SIZE)]
    if trains and (error := _error(experiment, example, target, is_training=True)):
        raise UserError(
            f"client.batch_size={size} leaves node {trains[0]} ({len(trains)} of "
            f"{experiment.settings.num_nodes} nodes) a batch of one example, on which {_why(error)}: choose "
            f"another client.batch_size, or {_other(error)}"
        ) from error
    if tests and (error := _error(experiment, example, target, is_training=False)):
        raise UserError(
            f"{tests[0]} ends with a batch of one example, on which {_why(error)}: {_other(error)}"
        ) from error


def _error(experiment: Experiment, example: Inputs, target: Tensor, is_training: bool) -> Exception | None:
    """Return the error of a fresh model, or the task, on one example; None if there is none."""
    with torch.random.fork_rng(), torch.no_grad():
        model = experiment.model().to(tensors_of(example)[0].device).train(is_training)
        try:
            experiment.dataset.task(compute_outputs(model, example), target)
        except Exception as error:  # the user's forward may raise anything
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
    """Say whether one of the batches holds a single example."""
    return count == 1 or (batch_size is not None and count % batch_size == 1 % batch_size)


# Metrics: are those of early stopping and the objective measured at all?


DEFAULT_OBJECTIVE = "test/accuracy"  # the default objective, not checked: some data have no accuracy
TASK_SPLITS = ("test", "validation")  # the splits whose metrics are exactly the task's


def check_metric(settings: Settings, metrics: Iterable[str], *, has_test_set: bool) -> None:
    """Refuse the name of a metric that is not among the task's ``metrics``.

    Raises
    ------
    UserError : for one of the test or the validation set; nodes may send further metrics
    """
    requested = {} if settings.objective == DEFAULT_OBJECTIVE else {"objective": settings.objective}
    if settings.early_stopping.patience is not None:
        requested["early_stopping.metric"] = settings.early_stopping.metric
    known = sorted(name.replace("-", "_") for name in metrics)
    for key, name in requested.items():
        split, _, metric = name.partition("/")
        if split == "test" and not has_test_set:
            raise UserError(f"{key}={name}: {without_test_set(settings)}; set e.g. node-test/accuracy")
        if split in TASK_SPLITS and metric not in known:
            ways = " or ".join(f"{split}/{one}" for one in known)
            raise UserError(f"{key}={name} is not measured: expected {ways}")


# The model on two examples: does it take the data, and can the task use its outputs?


def check_model(experiment: Experiment) -> None:
    """Run the model on two examples, and the task on its outputs.

    Raises
    ------
    UserError : for a model that does not fit the data or the task, or cannot learn
    """
    inputs, targets = _sound_examples(experiment)
    outputs = _outputs(experiment, inputs)
    if isinstance(experiment.dataset.task, Classification):
        _check_labels(experiment, _classes(outputs))
    try:
        _, metrics = experiment.dataset.task(outputs, targets)
    except (RuntimeError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"the data set's task cannot use what the model returns: {error}") from error
    check_single_examples(experiment, apply_to_each(lambda values: values[:1], inputs), targets[:1])
    check_metric(experiment.settings, metrics, has_test_set=len(experiment.test_examples) > 0)


def _sound_examples(experiment: Experiment) -> tuple[Inputs, Tensor]:
    try:
        inputs, targets = two_examples(experiment)
    except RuntimeError as error:  # a mean for two channels where there is one
        fault = f"the data set's transform does not take its inputs: {error}"
        raise UserError(f"{fault}; correct dataset.load, e.g. its mean and std") from error
    if not all(bool(values.isfinite().all()) for values in tensors_of(inputs)):
        raise UserError(
            "the data set's inputs have NaN or infinite values: correct dataset.load, its mean and std"
        )
    return inputs, targets


def _outputs(experiment: Experiment, inputs: Inputs) -> Tensor:
    """Return the model's outputs for two examples; a user's own task may take any type."""
    model = experiment.node_model.eval()
    if not any(p.requires_grad for p in model.parameters()):
        raise UserError(
            "the model has no parameter to train: choose another model, or set requires_grad on one"
        )
    try:
        with torch.no_grad():
            outputs: Tensor = compute_outputs(model, inputs)
    except Exception as error:  # the user's forward may raise anything
        usual = isinstance(error, RuntimeError | ValueError | TypeError | IndexError) and str(error)
        shape = apply_to_each(lambda values: tuple(values.shape[1:]), inputs)
        dtype = apply_to_each(lambda values: values.dtype, inputs)
        message = error if usual else f"{type(error).__name__}: {error}"
        raise UserError(
            f"the model does not take the data set's inputs of shape {shape} and dtype {dtype} ({message}): "
            f"choose another model or dataset{_with_setting(experiment, 'input_shape', ', or do not set {}')}"
        ) from error
    return outputs


def _classes(outputs: Tensor) -> int:
    """Return the number of classes in a model's outputs."""
    if not isinstance(outputs, Tensor):
        raise UserError(
            f"the model returns a {type(outputs).__name__}: expected a tensor [examples, classes]"
        )
    if outputs.ndim < 2:
        raise UserError(f"the model returns a tensor {list(outputs.shape)}: expected [examples, classes]")
    return outputs.shape[1]


def two_examples(experiment: Experiment) -> tuple[Inputs, Tensor]:
    """Return two examples of the test set; if the sites have all data, two of zeros."""
    data = experiment.dataset
    if data.site is None:
        judged = experiment.test_examples
        if len(judged) == 0:  # central_test=none
            judged = replace(judged, index=torch.arange(len(data.test_targets)))
        return judged.batch(slice(0, 2), experiment.device)
    inputs = torch.zeros(2, *data.test_inputs.shape[1:], dtype=data.test_inputs.dtype)
    targets = torch.zeros(2, dtype=torch.int64)
    return Examples(inputs, targets, torch.arange(2), data.transform).batch(slice(None), experiment.device)


def _with_setting(experiment: Experiment, name: str, advice: str, otherwise: str = "") -> str:
    """Return advice that names a setting of the model; ``otherwise`` if the model lacks it."""
    return advice.format(f"model.{name}") if name in experiment.cfg.model else otherwise


def _check_labels(experiment: Experiment, classes: int) -> None:
    """Refuse labels outside a model's ``classes`` outputs."""
    if experiment.dataset.site is not None:
        known = experiment.dataset.num_classes
        if known is not None and classes < known:
            raise UserError(
                f"the model has {classes} classes, and the schema {known}: "
                f"{_with_setting(experiment, 'num_classes', 'correct {}', 'choose another model')}"
            )
        return
    for name in ("train_targets", "test_targets"):
        labels = getattr(experiment.dataset, name)
        if len(labels) == 0:
            raise UserError(f"{name} are empty: correct the data set")
        low, high = int(labels.min()), int(labels.max())
        if labels.dtype != torch.int64 or low < 0 or high >= classes:
            raise UserError(
                f"{name} are {low} to {high}, {labels.dtype}, and the model has {classes} classes: "
                "expected int64 labels from 0 on; correct the data set"
                f"{_with_setting(experiment, 'num_classes', ', or {}')}"
            )


def check(experiment: Experiment) -> None:
    """Build everything once, and run the model on two examples.

    Raises
    ------
    UserError : for parts that do not go together, in one line
    """
    with deterministic_algorithms(experiment.deterministic):
        _check(experiment)


def _check(experiment: Experiment) -> None:
    try:
        strategy = experiment.prototype
        layout = strategy.check(experiment.initial_arrays())
        if experiment.clock is not None:
            experiment.clock.require_nodes(experiment.settings.num_nodes)
        check_training(
            experiment.training,
            strategy.train_config(),
            experiment.known_corrections,
            experiment.known_compressions,
        )
        for kind in requested_corrections(strategy.train_config(), experiment.known_corrections):
            kind.check_model(experiment.node_model, experiment.dataset.task)
        if experiment.training.private:
            private.check_patterns(experiment.node_model, experiment.training.private)
        check_corrections_model(
            experiment.training.corrections, experiment.node_model, experiment.dataset.task
        )
        if experiment.training.personal is not None:
            experiment.training.personal.check(experiment.node_model, experiment.training.private)
    except ValueError as error:
        raise UserError(str(error)) from error
    check_promises(experiment, layout)
    check_rows(experiment.dataset, is_tested=experiment.settings.central_test == "all")
    check_compatibility(experiment)
    check_server_inputs(experiment)
    _warn_of_corrections(experiment)
    if experiment.dataset.site is None:
        _check_node_tests(experiment)
    _check_noise(experiment)
    if experiment.deterministic:
        _check_deterministic(experiment)
    check_model(experiment)


def check_server_inputs(experiment: Experiment) -> None:
    """Refuse ``server_inputs`` that the strategy ignores, that do not fit, or if it needs labels.

    Raises
    ------
    UserError : in one line that says which
    """
    settings, strategy = experiment.settings, experiment.prototype
    if settings.server_inputs is None:
        return
    if not has_distillation(experiment):
        raise UserError(
            f"server_inputs={settings.server_inputs}: strategy={strategy.name} does not use them; leave it "
            "out, or choose strategy=feddf or codistillation"
        )
    rules = (strategy, getattr(strategy, "inner", strategy))
    needs_labels = any("server_data" in vars(one) and not hasattr(one, "distillation") for one in rules)
    if needs_labels and not settings.validation_size:
        raise UserError(f"{strategy.name} {VALIDATION_ERROR}")
    _ = experiment.server_inputs


def _warn_of_corrections(experiment: Experiment) -> None:
    """Warn of corrections without effect; a site may have few examples, or many."""
    few_or_many = [1, 10**9]
    sizes = (
        [len(train) for train, _ in experiment.partitions]
        if experiment.dataset.site is None
        else few_or_many
    )
    for line in experiment.training.idle_corrections(sizes):
        warn_once(line)


def _check_node_tests(experiment: Experiment) -> None:
    """Partition the data, and refuse tests on the nodes if no node has a test example."""
    settings, dealt = experiment.settings, experiment.partitions
    if settings.node_test_fraction and not any(len(test) for _, test in dealt):
        raise UserError(
            f"node_test_fraction={settings.node_test_fraction} leaves no node of {settings.num_nodes} an example "
            "to test on: raise it, or set it to 0"
        )


def _check_noise(experiment: Experiment) -> None:
    """Refuse a parameter with two names, which would get different noise on the server."""
    privacy = getattr(experiment.prototype, "privacy", None)
    if not isinstance(privacy, Gaussian) or privacy.is_local or not privacy.noise_multiplier:
        return
    if tied := tied_parameters(experiment.node_model):
        raise UserError(
            f"the model's {tied[0]} is a parameter under a second name, and each would get its own noise: "
            "choose a model without shared parameters, or privacy=none"
        )


def _check_deterministic(experiment: Experiment) -> None:
    """Refuse a model of which one training step has no deterministic algorithm."""
    try:
        inputs, targets = two_examples(experiment)
        with torch.random.fork_rng():
            model = experiment.model().train()
            loss, _ = experiment.dataset.task(compute_outputs(model, inputs), targets)
            torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
    except Exception as error:  # other errors are reported by check_model
        if "deterministic" not in str(error):
            return
        first = " ".join(str(error).split()).partition(". ")[0]
        raise UserError(
            f"deterministic=true, but the model has no deterministic algorithm ({first}): choose another "
            "model, device=cpu, or deterministic=false"
        ) from error
