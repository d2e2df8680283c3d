"""Distillation at the server: a model learns what others predict for inputs without labels."""

import math
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord
from torch import Tensor

from strategies.parts.layout import Layout
from strategies.shared.arrays import to_float64, values_of
from strategies.shared.checks import require, require_count

from .strategy import ServerData

ROWS_AT_ONCE = 1000  # inputs of a batch that needs no gradient


@dataclass(frozen=True)
class Distillation:
    """Steps of Adam on KL(softmax(z) || softmax(f(w; x))): z are teachers' logits for an input x, f the student's.

    Step j = 0, 1, ... has the rate lr (1 + cos(pi j / steps)) / 2. Its gradient in the student's logits is
    softmax(f) - softmax(z), averaged over a batch: a student that predicts what its teachers do stays as it is.
    Each epoch takes the inputs in a new order.

    Parameters
    ----------
    steps : how many steps of Adam after each round; 0 for none
    lr : Adam's learning rate in the first of them; it falls to 0 along a cosine
    batch_size : inputs in a step
    """

    steps: int = 100
    lr: float = 1e-3
    batch_size: int = 128

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        whole = isinstance(self.steps, int) and not isinstance(self.steps, bool) and self.steps >= 0
        require(whole, "strategy.distillation.steps", self.steps, "a whole number, 0 or above")
        require(0 < self.lr < math.inf, "strategy.distillation.lr", self.lr, "a number above 0")
        require_count("strategy.distillation.batch_size", self.batch_size)

    def draw_batches(self, num_inputs: int, seed: int) -> tuple[Tensor, list[Tensor]]:
        """Return the rows that a round's steps look at, and the places of each step's batch among them."""
        draws, batches = torch.Generator().manual_seed(seed), list[Tensor]()
        while len(batches) < self.steps:
            batches += torch.split(torch.randperm(num_inputs, generator=draws), self.batch_size)
        batches = batches[: self.steps]
        rows, places = torch.unique(torch.cat(batches), return_inverse=True)
        return rows, list(torch.split(places, [len(batch) for batch in batches]))

    @torch.enable_grad()  # type: ignore[no-untyped-call]
    def train(
        self,
        data: ServerData,
        layout: Layout,
        student: ArrayRecord,
        logits: Tensor,
        rows: Tensor,
        batches: list[Tensor],
    ) -> Tensor:
        """Return the student's parameters [P] after the steps; its buffers stay.

        Parameters
        ----------
        data, layout : whose inputs they are, and where the model's parameters lie in [P]
        student : the model before the steps
        logits : [n, ..., classes] in float64, the teachers' for the n ``rows``
        rows, batches : as :meth:`draw_batches` gave them
        """
        arrays = {name: values_of(array).detach() for name, array in student.items()}
        trained = [arrays[layer.name].clone().requires_grad_() for layer in layout.parameters]
        arrays |= {layer.name: p for layer, p in zip(layout.parameters, trained, strict=True)}
        optimizer = torch.optim.Adam(trained, lr=self.lr)
        for step, places in enumerate(batches):
            optimizer.param_groups[0]["lr"] = self.lr * (1 + math.cos(math.pi * step / self.steps)) / 2
            outputs = data.compute_outputs(arrays, rows[places])
            targets = logits[places.to(logits.device)].to(outputs).softmax(-1)
            slopes = outputs.detach().softmax(-1) - targets
            optimizer.zero_grad()
            torch.autograd.backward([outputs], [slopes / slopes[..., 0].numel()])
            optimizer.step()
        return torch.cat([p.detach().reshape(-1).to(layout.dtype) for p in trained])


@torch.no_grad()
def predict(data: ServerData, model: ArrayRecord, rows: Tensor) -> Tensor:
    """Return a model's logits for these inputs in float64, in which the mean of equal ones is exact."""
    arrays = {name: values_of(array) for name, array in model.items()}
    parts = [data.compute_outputs(arrays, part) for part in torch.split(rows, ROWS_AT_ONCE)]
    return to_float64(torch.cat(parts))
