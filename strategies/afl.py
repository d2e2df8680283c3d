"""Agnostic federated learning: the best model for the worst mixture of the nodes.

Mohri, Sivek, Suresh: *Agnostic Federated Learning*, ICML 2019, section 4.1 (stochastic AFL). The objective
is min_w max_lambda sum_k lambda_k F_k(w) over all lambda that sum to one. With F_k node k's loss at w[t]:

    w[t+1] = w[t] - eta sum_k lambda[t,k] Delta_k                       weighting = Agnostic(rate)
    lambda[t+1] = Proj( lambda[t] + rate (F_1, ..., F_N) )              onto the simplex

Nodes must be ours, or send ``start-loss``, 0 or above; others are left out by name. Deviations: nodes take
local steps, where the paper takes one gradient; where only some nodes train in a round, lambda rises for
these, and they are weighted among themselves; w is not projected. Algorithm 1 returns the means of all w and
all lambda: ``average_last`` evaluates that of w; training goes on from the last w, which is what is saved.
Reduction: rate = 0 is FedAvg with uniform weights.
"""

from dataclasses import dataclass
from typing import ClassVar

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.weighting import Agnostic, Weighting


@dataclass(kw_only=True, eq=False)
class AFL(PseudoGradientStrategy):
    """FedAvg whose weights follow the nodes' losses; see the module's docstring for the rule."""

    named_part: ClassVar[str] = "weighting"
    weighting: Weighting = Agnostic()
