"""A strategy and its correction: a fading pull to the global model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from flwr.app import ConfigScalar
from torch.nn import Parameter

from clients import Correction, RoundStart
from strategies import PseudoGradientStrategy


@dataclass(kw_only=True, eq=False)
class FedPull(PseudoGradientStrategy):
    """FedAvg whose messages carry ``pull``; mu = 0 is FedAvg."""

    mu: float = 0.1

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), "pull": self.mu}


class Pull(Correction):
    """g <- g + (mu / t) (w - w_t) in round t."""

    config_key: ClassVar[str] = "pull"

    def __init__(self, start: RoundStart) -> None:
        mu, server_round = start.config["pull"], start.config["server-round"]
        assert isinstance(mu, float)
        assert isinstance(server_round, int)
        self.strength = mu / server_round
        self.anchor = [p.detach().clone() for p in start.named.values()]

    def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
        for p, anchor in zip(parameters, self.anchor, strict=True):
            if p.grad is not None:
                p.grad.add_(p.detach() - anchor, alpha=self.strength)
