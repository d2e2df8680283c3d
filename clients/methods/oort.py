"""Oort on the node: report how large its examples' losses are. The server's half: :mod:`strategies.oort`."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from flwr.app import ArrayRecord
from torch import nn
from torch.nn import Parameter

from clients.correction import Correction, RoundStart
from clients.examples import Examples, apply_to_each, compute_outputs
from clients.tasks import Task
from strategies.shared import protocol


@torch.no_grad()
def mean_squared_loss(model: nn.Module, examples: Examples, task: Task, batch_size: int | None) -> float:
    """Return the mean over the examples of the square of each one's own loss, in evaluation mode.

    The loss of an example is the task's of a batch that holds it alone: so any task has one, and each example
    costs a call of the task. The model is called batch by batch.
    """
    size, device = len(examples), next(model.parameters()).device
    model.eval()
    batch_size, total = batch_size or size, torch.zeros((), device=device)
    for start in range(0, size, batch_size):
        inputs, targets = examples.batch(slice(start, start + batch_size), device)
        outputs = compute_outputs(model, inputs)
        for k in range(len(targets)):
            row = slice(k, k + 1)
            alone = apply_to_each(lambda values, row=row: values[row], outputs)  # type: ignore[misc]
            total += task(alone, targets[row])[0].square()
    return float(total) / size


class SquaredLoss(Correction):
    """Reports the mean squared loss of the node's examples at the model that it is sent.

    It costs the node one more pass over its data, without gradients.
    """

    config_key: ClassVar[str] = protocol.SQUARED_LOSS

    def __init__(self, start: RoundStart) -> None:
        self.loss = mean_squared_loss(start.model, start.examples, start.task, start.batch_size)

    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        metrics[protocol.SQUARED_LOSS] = self.loss
        return {}
