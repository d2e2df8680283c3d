"""FedExP: speeding up federated averaging via extrapolation.

Jhunjhunwala, Wang, Joshi: *FedExP: Speeding Up Federated Averaging via Extrapolation*, ICLR 2023,
Algorithm 1.

    D      = (1/M) sum_k Delta_k                                         weighting = Uniform
    eta_t  = max{1, sum_k ||Delta_k||^2 / (2 M (||D||^2 + epsilon))}     step_size = Extrapolated
    w[t+1] = w[t] - eta_t D

M is the number of nodes that replied. The model that is evaluated is the mean of the last two iterates
(section 3 there), because the iterates oscillate; training goes on from the last iterate.

Deviations: none from the paper. The authors' code weights nodes by examples (``weighting=ByExamples()``)
and multiplies epsilon by the number of sampled nodes; see :class:`~strategies.parts.step_size.Extrapolated`
for its other options. Reduction: epsilon to infinity takes the steps of FedAvg with uniform weights; with
``average_last=1`` it is that.
"""

from dataclasses import dataclass
from typing import ClassVar

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.step_size import Extrapolated, StepSize
from .parts.weighting import Uniform, Weighting


@dataclass(kw_only=True, eq=False)
class FedExP(PseudoGradientStrategy):
    """FedAvg with the extrapolated server step size; see the module's docstring for the rule."""

    named_part: ClassVar[str] = "step_size"
    weighting: Weighting = Uniform()
    step_size: StepSize = Extrapolated()
    average_last: int = 2
