"""Inputs of several tensors, for models that take more than one.

A batch's inputs are a tensor, or a tuple or a dict of tensors that have a row for each example. A tuple's
tensors are the model's positional arguments, those of a dict its keywords.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

Inputs = Any  # a Tensor or LazyRows, or a tuple or a Mapping of them


def apply_to_each(function: Callable[[Any], Any], inputs: Inputs) -> Any:
    """Return what a function makes of a tensor, or of each of several."""
    if isinstance(inputs, Mapping):
        return {name: function(part) for name, part in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(function(part) for part in inputs)
    return function(inputs)


def tensors_of(inputs: Inputs) -> list[Any]:
    """Return the tensors, one or several."""
    if isinstance(inputs, Mapping):
        return list(inputs.values())
    return list(inputs) if isinstance(inputs, tuple) else [inputs]


def are_several(inputs: Inputs) -> bool:
    """Say whether inputs are several tensors."""
    return isinstance(inputs, tuple | Mapping)


def count_rows(inputs: Inputs) -> int:
    """Return how many examples there are."""
    return len(tensors_of(inputs)[0])


def arguments_of(inputs: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return a model's positional arguments and keywords."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def compute_outputs(model: nn.Module, inputs: Inputs) -> Any:
    """Return what a model says of a batch."""
    if not are_several(inputs):
        return model(inputs)
    arguments, named = arguments_of(inputs)
    return model(*arguments, **named)
