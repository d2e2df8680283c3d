"""Corrections: what a method does on the node between the backward pass and the optimiser's step.

FedProx and its kin differ from FedAvg on the node by a term in the gradient, and by what they tell the
server in the end. A correction is both.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from flwr.app import ArrayRecord
from torch import Tensor
from torch.nn import Parameter

from strategies import protocol


class Correction(ABC):
    """An edit or an observation of the gradients of one round, made anew for each round."""

    @abstractmethod
    def __call__(self, parameters: Sequence[Parameter]) -> None:
        """Edit or observe ``p.grad`` of every parameter, once in each step."""

    def finish(self, parameters: Sequence[Parameter], metrics: dict[str, float]) -> dict[str, ArrayRecord]:
        """Return what else the reply carries; may add to ``metrics``. Called after the last step."""
        return {}


class Proximal(Correction):
    """g <- g + mu (w - w_t): the gradient of (mu/2) ||w - w_t||^2 (FedProx, Algorithm 2).

    Parameters
    ----------
    parameters : at the values that the server sent, w_t
    mu : strength; 0 is FedAvg
    """

    def __init__(self, parameters: Sequence[Parameter], mu: float) -> None:
        self.anchor = [p.detach().clone() for p in parameters]
        self.mu = mu

    def __call__(self, parameters: Sequence[Parameter]) -> None:
        for p, start in zip(parameters, self.anchor, strict=True):
            if p.grad is not None:
                p.grad.add_(p.detach() - start, alpha=self.mu)


class GradientVariance(Correction):
    """Reports how much the gradient varies from step to step: for ``InverseVariance`` weights.

    The variance over the round's steps (divided by steps - 1; 0, for unknown, after a single one), averaged
    over all coordinates; Welford's algorithm.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.means: list[Tensor] = []
        self.squares: list[Tensor] = []

    def __call__(self, parameters: Sequence[Parameter]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not self.means:
            self.means = [torch.zeros_like(g) for g in gradients]
            self.squares = [torch.zeros_like(g) for g in gradients]
        self.steps += 1
        for g, mean, square in zip(gradients, self.means, self.squares, strict=True):
            change = g - mean
            mean.add_(change, alpha=1 / self.steps)
            square.addcmul_(change, g - mean)

    def finish(self, parameters: Sequence[Parameter], metrics: dict[str, float]) -> dict[str, ArrayRecord]:
        coordinates = sum(square.numel() for square in self.squares)
        total = sum(float(square.double().sum()) for square in self.squares)
        metrics[protocol.GRADIENT_VARIANCE] = total / coordinates / max(self.steps - 1, 1)
        return {}
