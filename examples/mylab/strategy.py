"""A strategy: a subclass that states what is new. The rest of the update rule stays."""

from dataclasses import dataclass

from strategies import PseudoGradientStrategy, StepSize, Weighting

from .step_size import Warmup
from .weighting import ByPower


@dataclass(kw_only=True, eq=False)
class FedWarm(PseudoGradientStrategy):
    """FedAvg that starts slowly and weights nodes by the root of their examples."""

    weighting: Weighting = ByPower()
    step_size: StepSize = Warmup()
