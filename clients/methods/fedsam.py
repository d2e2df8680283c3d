"""FedSAM: take gradients at a nearby point of higher loss, so that nodes reach flat minima.

Qu, Li, Duan, Liu, Tang, Lu: *Generalized Federated Learning via Sharpness Aware Minimization*, ICML 2022,
Algorithm 1 (FedSAM); Caldarola, Caputo, Ciccone, ECCV 2022, has the same step. Each local step takes two
gradients on its batch, with || . || the norm over all trained parameters:

    g  = grad F_k(w; batch)
    g~ = grad F_k(w + rho g / ||g||; batch)              w <- w - eta_l g~

The loss and accuracy of training are those at w. Deviations: none in the step; what a model does in a
forward pass besides (dropout's draws, running statistics) it does twice. Where g is 0 it stays at w.
Reduction: rho = 0 is FedAvg.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from clients.correction import Correction, RoundStart
from clients.fast.trace import Step
from strategies.shared.checks import require


class FedSAM(Correction):
    """Takes a step's gradient at a distance of rho uphill.

    Parameters
    ----------
    start : the round's
    rho : the distance, 0 or above; the paper takes 0.01 to 0.5
    """

    def __init__(self, start: RoundStart, rho: float = 0.05) -> None:
        self.check_settings(rho)
        self.rho = rho

    @staticmethod
    def check_settings(rho: float) -> None:
        require(0 <= rho < float("inf"), "client.corrections.fedsam.rho", rho, "0 or above")

    def wrap_gradient(self, step: Step) -> Step:
        def uphill(
            parameters: Sequence[Tensor], *batch: Tensor
        ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
            slopes, sums = step(parameters, *batch)
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in slopes]))
            if norm == 0:
                return slopes, sums
            before = [p.detach().clone() for p in parameters]
            for p, slope in zip(parameters, slopes, strict=True):
                p.add_(slope * (self.rho / norm))
            slopes, _ = step(parameters, *batch)
            for p, value in zip(parameters, before, strict=True):
                p.copy_(value)
            return slopes, sums

        return uphill if self.rho else step
