"""A strategy: a subclass that states what is new."""

from dataclasses import dataclass

from strategies import PseudoGradientStrategy, StepSize, Weighting

from .step_size import Warmup
from .weighting import ByPower


@dataclass(kw_only=True, eq=False)
class FedWarm(PseudoGradientStrategy):
    """FedAvg with a warm-up, and weights by the root of the examples."""

    weighting: Weighting = ByPower()
    step_size: StepSize = Warmup()
