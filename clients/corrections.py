"""Corrections: edits of the gradient between the backward pass and the optimiser's step.

FedProx and its kin differ from FedAvg on the node by one line each; that line is a correction.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter


class Correction(ABC):
    """One edit of the gradients, in place."""

    @abstractmethod
    def __call__(self, parameters: Sequence[Parameter]) -> None:
        """Edit ``p.grad`` of every parameter."""


@dataclass(frozen=True)
class Proximal(Correction):
    """g <- g + mu (w - w_t): the gradient of (mu/2) ||w - w_t||^2 (FedProx, Algorithm 2).

    Parameters
    ----------
    mu : strength; 0 is FedAvg
    anchor : w_t, the parameters as the server sent them, one tensor each
    """

    mu: float
    anchor: Sequence[Tensor]

    @classmethod
    def around(cls, parameters: Sequence[Parameter], mu: float) -> "Proximal":
        """Anchor the term at the parameters' present values."""
        return cls(mu, [p.detach().clone() for p in parameters])

    @torch.no_grad()
    def __call__(self, parameters: Sequence[Parameter]) -> None:
        """Add mu (w - w_t)."""
        for p, start in zip(parameters, self.anchor, strict=True):
            if p.grad is not None:
                p.grad.add_(p - start, alpha=self.mu)
