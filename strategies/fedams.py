"""FedAMS: FedAvg with an adaptive server optimizer whose second moment never falls.

Wang, Lin, Chen: *Communication-Efficient Adaptive Federated Learning*, ICML 2022, Algorithm 1 with option 1
(max stabilisation). With D the mean pseudo-gradient of the round, by coordinate:

    m  <- beta1 m + (1 - beta1) D                        server_optimizer = AMS
    v  <- beta2 v + (1 - beta2) D^2
    v^ <- max(v^, v), from epsilon
    w[t+1] = w[t] - eta m / sqrt(v^)                     step_size = Constant(eta)

Deviations: none; the paper's compressed FedCAMS is ``compression=top_k`` or ``scaled_sign`` with error
feedback beside it. Reduction: beta1 = 0 with an epsilon that no v exceeds is FedAvg of eta / sqrt(epsilon).
"""

from dataclasses import dataclass
from typing import ClassVar

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.server_optimizer import AMS, ServerOptimizer
from .parts.step_size import Constant, StepSize


@dataclass(kw_only=True, eq=False)
class FedAMS(PseudoGradientStrategy):
    """FedAvg with :class:`~strategies.AMS` on the server."""

    named_part: ClassVar[str] = "server_optimizer"
    server_optimizer: ServerOptimizer = AMS()
    step_size: StepSize = Constant(0.1)
