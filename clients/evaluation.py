"""Evaluate a model on a set of examples, on a node or on the server.

A batch is a thousand examples. Sums over batches are added in the batches' order, so that the result is
the same bit for bit wherever each batch was evaluated. Where a model has no output for one of the examples
(:func:`has_output`), every metric is NaN, whatever the task.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from strategies.shared.checks import void_measures

from .examples import Examples, compute_outputs
from .tasks import Task

BATCH_SIZE = 1000
NO_CLASS = -1  # the predicted class of an example without an output
Sums = dict[str, Tensor]


def evaluate(model: nn.Module, examples: Examples, task: Task) -> dict[str, float]:
    """Return the task's metrics of ``model``, averaged over ``examples``."""
    return average_sums(iterate_sums(model, examples, task, range(num_batches(examples))), len(examples))


def num_batches(examples: Examples) -> int:
    """Return how many batches the examples make."""
    return math.ceil(len(examples) / BATCH_SIZE)


@torch.no_grad()
def iterate_sums(model: nn.Module, examples: Examples, task: Task, batches: range) -> Iterator[Sums]:
    """Yield each metric's sum over the examples of each of these batches; NaN where an output is missing.

    This is checked once for all batches, since each check waits for the accelerator.
    """
    results = [
        (task(outputs, targets)[1], _is_complete(outputs))
        for outputs, targets in iterate_outputs(model, examples, batches)
    ]
    complete = torch.stack([flag for _, flag in results]).tolist() if results else []
    for (sums, _), is_complete in zip(results, complete, strict=True):
        if is_complete:
            yield sums
        else:
            yield {
                name: torch.full_like(value, torch.nan, dtype=torch.float32) for name, value in sums.items()
            }


def _is_complete(outputs: object) -> Tensor:
    """Return whether a model has an output for each of a batch's examples, one bool on its device."""
    flags = [has_output(tensor).all() for tensor in _tensors(outputs)]
    return torch.stack(flags).all() if flags else torch.ones((), dtype=torch.bool)


def average_sums(sums: Iterable[Sums], total: int) -> dict[str, float]:
    """Return each metric's mean over ``total`` examples, from its sums over their batches, in order."""
    totals: Sums = {}
    for batch in sums:
        for name, value in batch.items():
            totals[name] = totals[name] + value if name in totals else value
    return void_measures({name: float(value) / total for name, value in totals.items()})


def has_output(outputs: Tensor) -> Tensor:
    """Return for which examples a model has an output, [n] of bools.

    It has none where a value is NaN or infinite. Minus infinity beside finite values is allowed: models rule
    out classes with it.
    """
    rows = outputs.flatten(1) if outputs.ndim > 1 else outputs.reshape(-1, 1)
    if _is_readable_at_once(outputs) and bool(outputs.sum().isfinite()):  # then all values are finite
        return rows.new_ones(len(rows), dtype=torch.bool)
    finite = rows.isfinite()
    return (finite | (rows.isneginf() & finite.any(1, keepdim=True))).all(1)


def _is_readable_at_once(tensor: Tensor) -> bool:
    """Say whether a value can be read without waiting for an accelerator."""
    return tensor.device.type == "cpu"


def _tensors(outputs: object) -> Iterator[Tensor]:
    """Yield the tensors in what a model returns, one for each example along the first dimension."""
    if isinstance(outputs, Tensor):
        yield outputs
    elif isinstance(outputs, Mapping):
        for value in outputs.values():
            yield from _tensors(value)
    elif isinstance(outputs, list | tuple):
        for value in outputs:
            yield from _tensors(value)


@torch.no_grad()
def predict_classes(model: nn.Module, examples: Examples) -> tuple[Tensor, Tensor]:
    """Return each example's label, and its predicted class or ``NO_CLASS``, [n] each."""
    pairs = [
        (targets, out.argmax(1).where(has_output(out), NO_CLASS))
        for out, targets in iterate_outputs(model, examples, range(num_batches(examples)))
    ]
    labels, predicted = zip(*pairs, strict=True)
    return torch.cat(labels).cpu(), torch.cat(predicted).cpu()


@torch.no_grad()
def find_correct(model: nn.Module, examples: Examples, batches: range) -> Tensor:
    """Return for each example of these batches whether the model is right about it, [n] of bools."""
    parts = [
        (out.argmax(1) == targets) & has_output(out)
        for out, targets in iterate_outputs(model, examples, batches)
    ]
    return torch.cat(parts).cpu()


@torch.no_grad()
def iterate_outputs(
    model: nn.Module, examples: Examples, batches: range
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the model's outputs for each of these batches, and the batch's targets."""
    device = next(model.parameters()).device
    model.eval()
    for batch in batches:
        start = batch * BATCH_SIZE
        inputs, targets = examples.batch(slice(start, start + BATCH_SIZE), device)
        yield compute_outputs(model, inputs), targets
