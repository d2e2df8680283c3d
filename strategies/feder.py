"""FedER: federated effective rank.

A. Fu's thesis (University of Toronto, 2022), Algorithms 3 and 4: nodes are weighted layer by layer, by the
effective rank of what their convolutions have learnt. The rule and its readings are in
:mod:`strategies.parts.weighting`. The thesis' two limitations, one process and consecutive loops, are
gone: ranks are computed in parallel, from the smaller Gram matrix. Reduction: nodes of
equal rank are FedAvg with uniform weights.
"""

from dataclasses import dataclass
from typing import ClassVar

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.weighting import EffectiveRank, Weighting


@dataclass(kw_only=True, eq=False)
class FedER(PseudoGradientStrategy):
    """FedAvg with :class:`~strategies.EffectiveRank` weights; needs a convolutional model."""

    named_part: ClassVar[str] = "weighting"
    weighting: Weighting = EffectiveRank()
