"""Mime-lite: nodes take the steps of a centralised optimiser, whose momentum the server renews.

Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich, Suresh: *Breaking the Centralized Barrier for Cross-Device
Federated Learning* (Mime), NeurIPS 2021 (arXiv 2008.03606), Algorithm 1, MimeLite with SGD with momentum.
The server keeps the momentum m, 0 at the start, which no node changes in a round.

    node:    y <- y - eta_l ((1 - beta) g_k(y) + beta m)                in each of its steps
    server:  m <- (1 - beta) (1/K) sum_k grad F_k(w[t]) + beta m
             w[t+1] = w[t] - eta (1/K) sum_k Delta_k                    weighting = Uniform

The server sends m as one more record, and every reply carries the gradient of all of the node's examples at
w[t], which costs it one more pass over its data. Nodes must be ours. Deviation: none; the paper's other base
optimisers are left out. Reduction: beta = 0 is FedAvg with uniform weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from flwr.app import ConfigScalar
from torch import Tensor

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.weighting import Uniform, Weighting
from .shared import protocol
from .shared.checks import require


@dataclass(kw_only=True, eq=False)
class MimeLite(PseudoGradientStrategy):
    """FedAvg with a momentum of full gradients in the nodes' steps; needs this project's ClientApp.

    Parameters
    ----------
    beta : the momentum, in [0, 1); the paper takes 0.9
    """

    sent_record: ClassVar[str | None] = protocol.MOMENTUM  # m
    extra_record: ClassVar[str | None] = protocol.FULL_GRADIENT
    weighting: Weighting = Uniform()
    beta: float = 0.9

    def __post_init__(self) -> None:
        """Refuse a momentum outside [0, 1)."""
        super().__post_init__()
        require(0 <= self.beta < 1, "strategy.beta", self.beta, "in [0, 1)")

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), protocol.MIME_SHARE: 1.0 - self.beta}

    def absorb_extra(self, server_round: int, partition_ids: Sequence[int], extra: Tensor) -> None:
        """Renew the momentum by the mean of the nodes' gradients."""
        self.server_vector = torch.lerp(self.server_vector, extra.mean(0), 1 - self.beta)
