"""FedAdagrad, FedAdam, FedYogi: FedAvg with an adaptive server optimizer.

Reddi et al.: *Adaptive Federated Optimization*, ICLR 2021, Algorithm 2; the rule and its options are in
:mod:`strategies.parts.server_optimizer`. ``step_size=Constant(eta)`` is the paper's server learning rate.
"""

from dataclasses import dataclass
from typing import ClassVar

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.server_optimizer import Adagrad, Adam, ServerOptimizer, Yogi
from .parts.step_size import Constant, StepSize


@dataclass(kw_only=True, eq=False)
class FedAdagrad(PseudoGradientStrategy):
    """FedAvg with :class:`~strategies.Adagrad` on the server."""

    named_part: ClassVar[str] = "server_optimizer"
    server_optimizer: ServerOptimizer = Adagrad()
    step_size: StepSize = Constant(0.1)


@dataclass(kw_only=True, eq=False)
class FedAdam(PseudoGradientStrategy):
    """FedAvg with :class:`~strategies.Adam` on the server."""

    named_part: ClassVar[str] = "server_optimizer"
    server_optimizer: ServerOptimizer = Adam()
    step_size: StepSize = Constant(0.1)


@dataclass(kw_only=True, eq=False)
class FedYogi(PseudoGradientStrategy):
    """FedAvg with :class:`~strategies.Yogi` on the server."""

    named_part: ClassVar[str] = "server_optimizer"
    server_optimizer: ServerOptimizer = Yogi()
    step_size: StepSize = Constant(0.1)
