"""A strategy, what it keeps and sends, and its correction: FedCM's rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from flwr.app import ConfigScalar
from torch import Tensor
from torch.nn import Parameter

from clients import Correction, RoundStart
from strategies import PseudoGradientStrategy, Uniform, Updates, Weighting


@dataclass(kw_only=True, eq=False)
class FedInertia(PseudoGradientStrategy):
    """m <- mean_k Delta_k / (rate steps), sent to all; alpha = 1 is FedAvg."""

    sent_record: ClassVar[str | None] = (
        "inertia"  # self.server_vector, 0 at first
    )
    required_metrics: ClassVar[tuple[str, ...]] = (
        "learning-rate",
        "local-steps",
    )
    weighting: Weighting = Uniform()
    alpha: float = 0.1

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), "inertia-alpha": float(self.alpha)}

    def take_step(
        self, server_round: int, updates: Updates
    ) -> tuple[dict[str, float], Tensor]:
        rates, steps = (updates.metrics[name] for name in self.required_metrics)
        direction = updates.mean(1 / (rates * steps * len(steps)))
        metrics, weights = super().take_step(server_round, updates)
        self.server_vector = direction
        return metrics, weights


class Inertia(Correction):
    """g <- alpha g + (1 - alpha) m in each of a node's steps."""

    config_key: ClassVar[str] = "inertia-alpha"
    shares_all: ClassVar[bool] = True  # what stays at a node has no m

    def __init__(self, start: RoundStart) -> None:
        alpha = start.config[self.config_key]
        assert isinstance(alpha, float)
        self.alpha = alpha
        self.momentum = start.tensors("inertia")

    @classmethod
    def uses_displacement(cls, config: Mapping[str, object]) -> bool:
        return True  # the server divides it by rate and steps

    def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
        for p, m in zip(parameters, self.momentum, strict=True):
            if p.grad is not None:
                p.grad.mul_(self.alpha).add_(m, alpha=1 - self.alpha)
