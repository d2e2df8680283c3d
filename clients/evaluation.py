"""How well a model does on a set of examples, on a node or on the server.

A batch is a thousand examples. Sums over batches are added in the batches' order, so that the result is
the same to the bit wherever each of them was taken.
"""

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from .examples import Examples
from .tasks import Task

BATCH_SIZE = 1000
Sums = dict[str, Tensor]


def evaluate(model: nn.Module, examples: Examples, task: Task) -> dict[str, float]:
    """Return the task's metrics of ``model``, averaged over ``examples``."""
    return averaged(batch_sums(model, examples, task, range(num_batches(examples))), len(examples))


def num_batches(examples: Examples) -> int:
    """Return how many batches the examples make."""
    return math.ceil(len(examples) / BATCH_SIZE)


@torch.no_grad()
def batch_sums(model: nn.Module, examples: Examples, task: Task, batches: range) -> Iterator[Sums]:
    """Return each metric's sum over the examples of each of these batches."""
    for outputs, targets in outputs_of(model, examples, batches):
        yield task(outputs, targets)[1]


def averaged(sums: Iterable[Sums], total: int) -> dict[str, float]:
    """Return each metric's mean over ``total`` examples, from its sums over their batches, in order."""
    totals: Sums = {}
    for batch in sums:
        for name, value in batch.items():
            totals[name] = totals[name] + value if name in totals else value
    return {name: float(value) / total for name, value in totals.items()}


@torch.no_grad()
def predictions(model: nn.Module, examples: Examples) -> tuple[Tensor, Tensor]:
    """Return the label of each example, and what the model takes it for, two of [n]."""
    pairs = [
        (targets.cpu(), out.argmax(1).cpu())
        for out, targets in outputs_of(model, examples, range(num_batches(examples)))
    ]
    labels, predicted = zip(*pairs, strict=True)
    return torch.cat(labels), torch.cat(predicted)


@torch.no_grad()
def correct(model: nn.Module, examples: Examples, batches: range) -> Tensor:
    """Return for each example of these batches whether the model is right about it, [n] of bools."""
    parts = [(out.argmax(1) == targets).cpu() for out, targets in outputs_of(model, examples, batches)]
    return torch.cat(parts)


@torch.no_grad()
def outputs_of(model: nn.Module, examples: Examples, batches: range) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what the model says of each of these batches, and the batch's targets."""
    device = next(model.parameters()).device
    model.eval()
    for batch in batches:
        start = batch * BATCH_SIZE
        inputs, targets = examples.batch(slice(start, start + BATCH_SIZE), device)
        yield model(inputs), targets
