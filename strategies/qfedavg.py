"""q-FedAvg: fair federated learning.

Li, Sanjabi, Beirami, Smith: *Fair Resource Allocation in Federated Learning*, ICLR 2020, Algorithm 2. The
objective is sum_k p_k F_k(w)^(q+1) / (q + 1). With L = 1 / eta_l, and F_k node k's loss at w[t]:

    D_k    = F_k^q L Delta_k
    h_k    = q F_k^(q-1) ||L Delta_k||^2 + L F_k^q           aggregation = Fair(q)
    w[t+1] = w[t] - sum_k D_k / sum_k h_k                    weighting = Uniform, step_size = Constant(1)

Nodes must be ours, or send ``start-loss``; others are left out by name. Deviation: the paper draws node k
with probability p_k = n_k / n, here all are equally likely; ``weighting=ByExamples()`` counts a node n_k times
instead. Reduction: q = 0 is FedAvg with uniform weights (or those of another ``weighting``), bit for bit.
"""

from dataclasses import dataclass
from typing import ClassVar

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.aggregation import Aggregation, Fair
from .parts.weighting import Uniform, Weighting


@dataclass(kw_only=True, eq=False)
class QFedAvg(PseudoGradientStrategy):
    """FedAvg that gives more weight to nodes with high loss; see the module's docstring for the rule."""

    named_part: ClassVar[str] = "aggregation"
    weighting: Weighting = Uniform()
    aggregation: Aggregation = Fair()
