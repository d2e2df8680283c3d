"""How well a model does on a set of examples, on a node or on the server."""

import torch
from torch import Tensor, nn

from .examples import Examples
from .tasks import Task


@torch.no_grad()
def evaluate(model: nn.Module, examples: Examples, task: Task, batch_size: int = 1000) -> dict[str, float]:
    """Return the task's metrics of ``model``, averaged over ``examples``."""
    device = next(model.parameters()).device
    model.eval()
    totals: dict[str, Tensor] = {}
    for start in range(0, len(examples), batch_size):
        inputs, targets = examples.batch(slice(start, start + batch_size), device)
        _, sums = task(model(inputs), targets)
        for name, value in sums.items():
            totals[name] = totals[name] + value if name in totals else value
    return {name: float(total) / len(examples) for name, total in totals.items()}


@torch.no_grad()
def correct(model: nn.Module, examples: Examples, batch_size: int = 1000) -> Tensor:
    """Return for each example whether the model's most likely class is its target, [n] of bools."""
    device = next(model.parameters()).device
    model.eval()
    parts: list[Tensor] = []
    for start in range(0, len(examples), batch_size):
        inputs, targets = examples.batch(slice(start, start + batch_size), device)
        parts.append((model(inputs).argmax(1) == targets).cpu())
    return torch.cat(parts)
