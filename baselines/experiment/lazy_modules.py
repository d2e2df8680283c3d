"""Lazy modules, as ``nn.LazyLinear``: they learn their shapes from two examples before anything is sent."""

from itertools import chain

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from baselines.datasets import Dataset
from baselines.errors import UserError
from clients import Examples
from clients.inputs import Inputs, apply_to_each, compute_outputs, count_rows

PAIR = 2
CPU = torch.device("cpu")


def has_lazy(model: nn.Module) -> bool:
    """Say whether a model has parameters or buffers without a shape."""
    return bool(_names(model))


def materialise(model: nn.Module, data: Dataset) -> None:
    """Let a model see two examples, in evaluation mode; what is drawn depends on their shapes alone.

    Raises
    ------
    UserError : for a model that does not take them, or has parameters without a shape even then
    """
    was_training, inputs = model.training, _two_examples(data)
    try:
        with torch.no_grad():
            compute_outputs(model.eval(), inputs)
    except Exception as error:  # whatever a forward of the user's own raises
        said = f"{type(error).__name__}: {error}"
        raise UserError(
            "the model's lazy modules learn their shapes from two examples, which it does not take "
            f"({said}): choose another model or dataset, or give the modules their shapes"
        ) from error
    model.train(was_training)
    if names := _names(model):
        raise UserError(
            f"the model's {names[0]} has no shape, as its forward does not use it: give the module its "
            "shape, or leave it out"
        )


def _names(model: nn.Module) -> list[str]:
    return [name for name, t in chain(model.named_parameters(), model.named_buffers()) if is_lazy(t)]  # type: ignore[no-untyped-call]


def _two_examples(data: Dataset) -> Inputs:
    """Return two transformed inputs; zeros where the data are not here."""
    rows = data.train_inputs
    if count_rows(rows) < PAIR:
        rows = apply_to_each(lambda part: torch.zeros(PAIR, *part.shape[1:], dtype=part.dtype), rows)
    examples = Examples(rows, torch.zeros(count_rows(rows)), torch.arange(PAIR), data.transform)
    return examples.batch(slice(None), CPU)[0]
