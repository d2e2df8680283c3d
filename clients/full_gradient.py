"""The loss and the gradient of all of a node's examples, as local training sees them.

Both are means over training's batches, weighted by their sizes; not where a batch's loss is a sum, which is
the greater for more examples. The model is in evaluation mode meanwhile: no dropout, running statistics as
they are.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from .examples import Examples
from .inputs import compute_outputs
from .tasks import Task


@torch.enable_grad()  # type: ignore[no-untyped-call]
def full_gradient(model: nn.Module, examples: Examples, task: Task, batch_size: int | None) -> list[Tensor]:
    """Return the gradient at the model's parameters."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    for loss, share in _losses(model, examples, task, batch_size):
        for sum_, g in zip(
            total, torch.autograd.grad(loss, parameters, materialize_grads=True), strict=True
        ):
            sum_.add_(g, alpha=share)
    return total


@torch.no_grad()
def full_loss(model: nn.Module, examples: Examples, task: Task, batch_size: int | None) -> float:
    """Return the loss that the node minimises, which need not be the one that the task reports."""
    return float(sum(share * loss for loss, share in _losses(model, examples, task, batch_size)))


def _losses(
    model: nn.Module, examples: Examples, task: Task, batch_size: int | None
) -> Iterator[tuple[Tensor, float]]:
    """Yield the loss of each batch, and what it counts for."""
    size, device = len(examples), next(model.parameters()).device
    model.eval()
    starts = range(0, size, batch_size or size)
    for start in starts:
        inputs, targets = examples.batch(slice(start, start + (batch_size or size)), device)
        loss = task(compute_outputs(model, inputs), targets)[0]
        yield loss, 1 / len(starts) if task.sums else len(targets) / size
