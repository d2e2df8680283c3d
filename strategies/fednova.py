"""FedNova: normalized averaging, for nodes that do unequal work.

Wang, Liu, Liang, Joshi, Poor: *Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization*, NeurIPS 2020, section 5.

    d_k     = Delta_k / |a_k|_1                          the node's mean gradient, times eta_l
    tau_eff = sum_k (n_k / n) |a_k|_1                    weighting = ByExamples
    w[t+1]  = w[t] - eta tau_eff sum_k (n_k / n) d_k     aggregation = Normalized

FedAvg minimises another objective than the mean of the nodes', one in which node k counts |a_k|_1 times
as much; this does not. In plain SGD |a_k|_1 is the number of local steps, with momentum the summed weights of
the gradients. Nodes must be ours, or send ``effective-steps``; others are left out by name. A momentum kept
from round to round is refused, since it holds gradients of earlier rounds. Another tau_eff is another eta.
Deviation: FedProx's term counts as a part of the gradient, and leaves |a_k|_1 as it is. Reduction: equal
|a_k|_1 give FedAvg, bit for bit.
"""

from dataclasses import dataclass
from typing import ClassVar

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.aggregation import Aggregation, Normalized


@dataclass(kw_only=True, eq=False)
class FedNova(PseudoGradientStrategy):
    """FedAvg with normalized averaging; see the module's docstring for the rule."""

    named_part: ClassVar[str] = "aggregation"
    aggregation: Aggregation = Normalized()
