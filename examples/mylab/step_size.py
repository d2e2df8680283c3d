"""A server step size."""

from dataclasses import dataclass

from torch import Tensor

from strategies import StepSize
from strategies.parts.updates import Updates


@dataclass(frozen=True)
class Warmup(StepSize):
    """eta_t = min(1, t / rounds); rounds = 1 is FedAvg."""

    rounds: int = 5

    def __call__(
        self, server_round: int, updates: Updates, weights: Tensor, mean: Tensor
    ) -> float:
        return min(1.0, server_round / self.rounds)
