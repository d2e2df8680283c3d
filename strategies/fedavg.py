"""FedAvg, FedAvgM, and FedMeta, whose server takes one more step on examples of its own.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-Efficient Learning of Deep Networks from
Decentralized Data*, AISTATS 2017. Hsu, Qi, Brown: *Measuring the Effects of Non-Identical Data
Distribution for Federated Visual Classification*, 2019. Yao, Huang, Zhang, Li, Sun: *Federated Learning
with Unbiased Gradient Aggregation and Controllable Meta Updating*, NeurIPS workshop, 2019.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .core.pseudo_gradient import PseudoGradientStrategy
from .core.strategy import ServerData
from .parts.server_optimizer import Momentum, ServerOptimizer
from .parts.updates import Updates
from .shared.checks import require


@dataclass(kw_only=True, eq=False)
class FedAvg(PseudoGradientStrategy):
    """w[t+1] = w[t] - eta * sum_k (n_k / n) Delta_k (McMahan et al., Algorithm 1).

    With ``step_size=Constant(1)``, the default, the new model is the weighted mean of the nodes'
    models; another eta is a server learning rate (Reddi et al. 2021, Algorithm 1 with SGD).
    """


@dataclass(kw_only=True, eq=False)
class FedAvgM(PseudoGradientStrategy):
    """m <- beta m + D, w[t+1] = w[t] - eta m, D = sum_k (n_k / n) Delta_k (Hsu et al., section 4.3).

    ``server_optimizer=Momentum(beta=0)`` is FedAvg.
    """

    named_part: ClassVar[str] = "server_optimizer"
    server_optimizer: ServerOptimizer = Momentum()


@dataclass(kw_only=True, eq=False)
class FedMeta(PseudoGradientStrategy):
    """FedAvg with a meta update: the server keeps a small set, which says what the model is for.

        v      = w[t] - eta P( sum_k (n_k / n) Delta_k )           the round's step, with whatever parts
        w[t+1] = v - eta_meta grad L(v; D_meta)                    Yao et al., section 3

    In the paper the nodes' gradients are unbiased (UGA, ``client=keep_trace``): then Delta_k = eta_l g_k,
    and its server learning rate is eta eta_l. Any other client will do. D_meta are the training examples
    that ``validation_size`` sets aside. Reduction: eta_meta = 0 is FedAvg; with keep_trace, UGA alone.

    Parameters
    ----------
    meta_rate : eta_meta, 0 or above
    server_data : gives the gradient of the loss on the meta set
    """

    sums: ClassVar[tuple[str, ...] | None] = ()
    meta_rate: float = 0.01
    server_data: ServerData | None = None

    def __post_init__(self) -> None:
        """Refuse a negative rate."""
        super().__post_init__()
        require(0 <= self.meta_rate < float("inf"), "strategy.meta_rate", self.meta_rate, "0 or above")

    @property
    def needs_server_data(self) -> bool:
        return self.server_data is None and self.meta_rate > 0

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        metrics, weights = super().take_step(server_round, updates)
        if self.meta_rate > 0:
            model = updates.layout.record(self.parameters, self.buffers)
            slope = self.require_server_data().compute_gradient(model)
            flat = updates.layout.flatten_parameters(slope).to(self.parameters)
            self.parameters = self.parameters - self.meta_rate * flat
        return metrics, weights
