"""The model on two examples: does it take the data, and can the task use what it returns?"""

from dataclasses import replace

import torch
from torch import Tensor

from baselines.errors import UserError
from clients import Classification, Examples
from clients.inputs import Inputs, apply_to_each, compute_outputs, tensors_of

from . import measured, single_examples
from .experiment import Experiment


def check(this: Experiment) -> None:
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
    single_examples.check(this, apply_to_each(lambda values: values[:1], inputs), targets[:1])
    measured.check(this.settings, metrics, has_test_set=len(this.test_examples) > 0)


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
