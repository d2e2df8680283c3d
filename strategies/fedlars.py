"""FedLARS, FedLAMB: FedAvg whose server moves each layer by a share of its own length.

Charles, Garrett, Huo, Shmulyian, Smith: *On Large-Cohort Training for Federated Learning*, NeurIPS 2021,
use LARS (You, Gitman, Ginsburg: *Large Batch Training of Convolutional Networks*, 2017) and LAMB (You et al.:
*Large Batch Optimization for Deep Learning*, ICLR 2020, Algorithms 1 and 2) on the server. With D the
mean pseudo-gradient of the round, and w_l an array of the model:

    LARS:  m <- beta m + (1 - beta) D,  P = m            r_l = ||w_l|| / (||m_l|| + epsilon)
    LAMB:  P of Adam with bias correction                r_l = ||w_l|| / ||P_l||
    w_l[t+1] = w_l[t] - eta r_l P_l                      r_l = 1 where w_l or P_l is 0

eta is ``step_size=Constant(eta)``; the authors tune it. LARS is that of ICLR 2020, as in the authors' code: the
paper of 2017 multiplies D by r_l before the momentum. Deviations: no weight decay, which is 0 in the
authors' code as well; biases and normalisation have ratios of their own, like all arrays. Fed-LAMB (Karimi, Li,
Li, 2021) is another method: there the nodes take LAMB's steps. Reductions: from a model of zeros the first
round is FedAvg's with eta (1 - beta) in place of eta (FedLARS), and FedAdam's with bias correction (FedLAMB).
"""

from dataclasses import dataclass
from typing import ClassVar

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.server_optimizer import LAMB, LARS, ServerOptimizer
from .parts.step_size import Constant, StepSize


@dataclass(kw_only=True, eq=False)
class FedLARS(PseudoGradientStrategy):
    """FedAvg with :class:`~strategies.LARS` on the server."""

    named_part: ClassVar[str] = "server_optimizer"
    server_optimizer: ServerOptimizer = LARS()
    step_size: StepSize = Constant(0.1)


@dataclass(kw_only=True, eq=False)
class FedLAMB(PseudoGradientStrategy):
    """FedAvg with :class:`~strategies.LAMB` on the server."""

    named_part: ClassVar[str] = "server_optimizer"
    server_optimizer: ServerOptimizer = LAMB()
    step_size: StepSize = Constant(0.1)
