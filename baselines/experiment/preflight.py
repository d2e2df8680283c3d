"""Find a mistake before anything is started."""

import torch

from baselines.errors import UserError
from clients import Classification
from clients.app import check_training

from . import precision
from .experiment import Experiment


def check(this: Experiment) -> None:
    """Build everything once, and let the model see two examples.

    Raises
    ------
    UserError : for parts that cannot go together, in one line
    """
    with precision.deterministic(this.deterministic):
        _check(this)


def _check(this: Experiment) -> None:
    strategy = this.prototype
    try:
        strategy.check(this.initial_arrays())
        check_training(this.training, strategy.asks())
    except ValueError as error:
        raise UserError(str(error)) from error
    _ = this.training, this.partitions
    if this.deterministic:
        _check_deterministic(this)
    _check_model(this)


def _check_deterministic(this: Experiment) -> None:
    """Refuse a model of which one training step has no deterministic algorithm."""
    try:
        inputs, targets = this.test_examples.batch(slice(0, 2), this.device)
        with torch.random.fork_rng():
            model = this.model().train()
            loss, _ = this.dataset.task(model(inputs), targets)
            torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
    except Exception as error:  # whatever else is wrong is found without it, and told below
        if "deterministic" not in str(error):
            return
        first = " ".join(str(error).split()).partition(". ")[0]
        raise UserError(
            f"deterministic=true, but the model has no deterministic algorithm ({first}): choose another "
            "model, device=cpu, or deterministic=false"
        ) from error


def _check_model(this: Experiment) -> None:
    """Let the model see two examples, and the task what it says of them."""
    model = this.node_model.eval()
    try:
        inputs, targets = this.test_examples.batch(slice(0, 2), this.device)
    except RuntimeError as error:  # a mean for two channels where there is one
        said = f"the data set's transform does not take its inputs: {error}"
        raise UserError(f"{said}; correct dataset.load, e.g. its mean and std") from error
    if not inputs.isfinite().all():
        raise UserError(
            "the data set's inputs have NaN or infinite values: correct dataset.load, its mean and std"
        )
    try:
        with torch.no_grad():
            outputs = model(inputs)
    except RuntimeError as error:
        raise UserError(
            f"the model does not take the data set's inputs of shape {tuple(inputs.shape[1:])} and "
            f"dtype {inputs.dtype} ({error}): choose another model or dataset, or do not set "
            "model.input_shape"
        ) from error
    if isinstance(this.dataset.task, Classification):
        _check_labels(this, outputs.shape[1])
    try:
        this.dataset.task(outputs, targets)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UserError(f"the data set's task cannot use what the model returns: {error}") from error


def _check_labels(this: Experiment, classes: int) -> None:
    """Refuse labels that a model's ``classes`` outputs do not stand for."""
    for name in ("train_targets", "test_targets"):
        labels = getattr(this.dataset, name)
        if len(labels) == 0:
            raise UserError(f"{name} are empty: correct the data set")
        low, high = int(labels.min()), int(labels.max())
        if labels.dtype != torch.int64 or low < 0 or high >= classes:
            raise UserError(
                f"{name} are {low} to {high}, {labels.dtype}, and the model has {classes} classes: "
                "expected int64 labels from 0 on; correct the data set, or model.num_classes"
            )
