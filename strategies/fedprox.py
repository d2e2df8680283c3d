"""FedProx: a proximal term in every node's objective.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated Optimization in Heterogeneous Networks*, MLSys
2020, Algorithm 2. Node k minimises F_k(w) + (mu / 2) ||w - w[t]||^2; the server step is FedAvg's.

The server only sends mu; the term itself is :class:`clients.methods.fedprox.Proximal`, or that of any stock
client that reads ``proximal-mu``. Reduction: mu = 0 is FedAvg.
"""

from dataclasses import dataclass

from flwr.app import ConfigScalar

from .core.pseudo_gradient import PseudoGradientStrategy
from .shared import protocol
from .shared.checks import require


@dataclass(kw_only=True, eq=False)
class FedProx(PseudoGradientStrategy):
    """FedAvg whose nodes are pulled towards the global model with strength ``mu`` >= 0."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        """Refuse a negative mu."""
        super().__post_init__()
        require(0 <= self.mu < float("inf"), "strategy.mu", self.mu, "0 or above")

    def describe_unverified(self) -> str:
        term = [f"the proximal term ({protocol.PROXIMAL_MU} in the message's config)"] if self.mu else []
        return " and ".join([*term, *filter(None, [super().describe_unverified()])])

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), protocol.PROXIMAL_MU: self.mu}
