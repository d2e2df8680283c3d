"""A server optimizer: Lion (Chen et al. 2023), from the mean alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from strategies import ServerOptimizer


@dataclass(frozen=True)
class Lion(ServerOptimizer):
    """P(D) = sign(beta1 m + (1 - beta1) D); m <- beta2 m + (1 - beta2) D."""

    beta1: float = 0.9
    beta2: float = 0.99

    def __call__(
        self, mean: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        m = state.get("m", torch.zeros_like(mean))
        direction = torch.lerp(mean, m, self.beta1).sign()
        return direction, {"m": torch.lerp(mean, m, self.beta2)}
