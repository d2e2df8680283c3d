"""The gradient of all of a node's examples."""

import torch
from torch import Tensor, nn

from .examples import Examples
from .tasks import Task


@torch.enable_grad()  # type: ignore[no-untyped-call]
def full_gradient(model: nn.Module, examples: Examples, task: Task, batch_size: int | None) -> list[Tensor]:
    """Return the gradient of all examples at the model's parameters, the mean over its batches.

    The model is in evaluation mode meanwhile: no dropout, running statistics as they are.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    size, device = len(examples), parameters[0].device
    model.eval()
    total = [torch.zeros_like(p) for p in parameters]
    for start in range(0, size, batch_size or size):
        inputs, targets = examples.batch(slice(start, start + (batch_size or size)), device)
        loss, _ = task(model(inputs), targets)
        for sum_, g in zip(
            total, torch.autograd.grad(loss, parameters, materialize_grads=True), strict=True
        ):
            sum_.add_(g, alpha=len(targets) / size)
    return total
