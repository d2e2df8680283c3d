"""The corrections that need nothing but parameters and gradients: FedProx' term, and the variance."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from flwr.app import ArrayRecord
from torch import Tensor
from torch.nn import Parameter

from strategies.shared import protocol
from strategies.shared.checks import require
from strategies.shared.float64 import in_float64

from .correction import Correction, Edit, RoundStart, Tensors


class GradientVariance(Correction):
    """Reports how much the gradient varies from step to step: for ``InverseVariance`` weights.

    The variance over the round's steps (divided by steps - 1; 0, for unknown, after a single one), averaged
    over all coordinates; Welford's algorithm. It observes the gradient before other corrections but
    SCAFFOLD's, which adds the same in each step and leaves the variance as it is.
    """

    asked_by: ClassVar[str] = protocol.GRADIENT_VARIANCE

    def __init__(self, start: RoundStart | None = None) -> None:
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
        total = sum(float(in_float64(square).sum()) for square in self.squares)
        metrics[protocol.GRADIENT_VARIANCE] = total / coordinates / max(self.steps - 1, 1)
        return {}


class Towards(Correction):
    """g <- g + mu (w - a): the gradient of (mu/2) ||w - a||^2.

    Parameters
    ----------
    anchor : a, a tensor for each trained parameter
    mu : strength; 0 changes nothing
    """

    def __init__(self, anchor: Sequence[Tensor], mu: float) -> None:
        self.edit = Edit(_towards, [list(anchor)], (mu,))


class Proximal(Towards):
    """g <- g + mu (w - w_t): the gradient of (mu/2) ||w - w_t||^2 (FedProx, Algorithm 2).

    Parameters
    ----------
    start : the round's; its model is at w_t
    mu : strength, 0 or above; 0 is FedAvg
    """

    asked_by: ClassVar[str] = protocol.PROXIMAL_MU

    def __init__(self, start: RoundStart, mu: float) -> None:
        self.check_settings(mu)
        super().__init__([p.detach().clone() for p in start.named.values()], mu)

    @staticmethod
    def check_settings(mu: float) -> None:
        require(0 <= mu < float("inf"), "client.corrections.proximal.mu", mu, "0 or above")

    @classmethod
    def begin(cls, start: RoundStart) -> "Proximal":
        """Return the term with the strength that the message states."""
        return cls(start, float(start.config[protocol.PROXIMAL_MU]))  # type: ignore[arg-type]


def _towards(gradients: Tensors, parameters: Tensors, anchor: Tensors, mu: float) -> Tensors:
    return torch._foreach_add(gradients, torch._foreach_sub(parameters, anchor), alpha=mu)
