"""FedCM: every local step also follows the direction in which all nodes moved in the last round.

Xu, Wang, Wang, Yao: *FedCM: Federated Learning with Client-level Momentum*, 2021 (arXiv 2106.10874),
Algorithm 2. The server keeps the momentum D, 0 at the start.

    node:    y <- y - eta_l (alpha g_k(y) + (1 - alpha) D)              in each of its steps
    server:  D <- (1/K) sum_k Delta_k / (eta_l steps_k)                 the nodes' mean direction
             w[t+1] = w[t] - eta (1/K) sum_k Delta_k                    weighting = Uniform

The server sends D as one more record; nodes send nothing more, and keep nothing. Nodes must be ours, or say
their learning rate and steps. Deviations: the paper's server steps along D, by eta_g: eta here is
eta_g / (eta_l steps) where all nodes take equally many steps. Other parts (weights, a mask, eta) change the
step and not D. Privacy is refused, since its noise would not reach D, and so is a client's own momentum.
Reduction: alpha = 1 is FedAvg with uniform weights.
"""

from dataclasses import dataclass
from typing import ClassVar

from flwr.app import ConfigScalar
from torch import Tensor

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.privacy import NoPrivacy
from .parts.updates import Updates
from .parts.weighting import Uniform, Weighting
from .shared import protocol
from .shared.checks import require


@dataclass(kw_only=True, eq=False)
class FedCM(PseudoGradientStrategy):
    """FedAvg with a momentum in the nodes' steps; needs this project's ClientApp.

    Parameters
    ----------
    alpha : how much a node's own gradient counts, above 0, at most 1; the paper takes 0.1
    """

    sent_record: ClassVar[str | None] = protocol.MOMENTUM  # D
    required_metrics: ClassVar[tuple[str, ...]] = (protocol.LEARNING_RATE, protocol.LOCAL_STEPS)
    weighting: Weighting = Uniform()
    alpha: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a share out of range, and noise that would not reach the momentum."""
        super().__post_init__()
        require(0 < self.alpha <= 1, "strategy.alpha", self.alpha, "above 0, at most 1")
        why = "none under strategy=fedcm, whose momentum would have no noise"
        require(type(self.privacy) is NoPrivacy, "privacy", type(self.privacy).__name__, why)

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), protocol.CLIENT_MOMENTUM: float(self.alpha)}

    def describe_unverified(self) -> str:
        term = f"the momentum in the nodes' steps ({protocol.CLIENT_MOMENTUM} in the message's config)"
        return " and ".join([term, *filter(None, [super().describe_unverified()])])

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        rates, steps = (updates.metrics[name] for name in self.required_metrics)
        work = rates * steps  # 0: the node has not moved
        momentum = updates.mean(
            (1 / work).where(work > 0, 0.0) / len(work)
        )  # before the rule writes over it
        metrics, weights = super().take_step(server_round, updates)
        self.server_vector = momentum
        return metrics, weights
