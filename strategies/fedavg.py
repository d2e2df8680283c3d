"""FedAvg and FedAvgM.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-Efficient Learning of Deep Networks from
Decentralized Data*, AISTATS 2017. Hsu, Qi, Brown: *Measuring the Effects of Non-Identical Data
Distribution for Federated Visual Classification*, 2019.
"""

from dataclasses import dataclass

from .parts.server_optimizer import Momentum, ServerOptimizer
from .pseudo_gradient import PseudoGradientStrategy


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

    server_optimizer: ServerOptimizer = Momentum()
