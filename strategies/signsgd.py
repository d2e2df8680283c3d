"""signSGD with majority vote.

Bernstein, Wang, Azizzadenesheli, Anandkumar: *signSGD: Compressed Optimisation for Non-Convex Problems*,
ICML 2018, Algorithm 3.

    D      = sign( sum_k sign(Delta_k) )          aggregation = MajorityVote, weighting = Uniform
    w[t+1] = w[t] - eta D                         step_size = Constant(eta), the paper's delta

The paper's nodes take one step, ``client.local_epochs=null client.local_steps=1``: then sign(Delta_k) is
that of a gradient. After more steps it is that of their displacement. Deviations: nodes send their full
weights, unless ``compression=scaled_sign compression.error_feedback=false`` lets them send a bit for each
(a 0 as either sign, at random); there is no weight decay on the server. Reduction: nodes that all move by
eta, with the same signs, give FedAvg.
"""

from dataclasses import dataclass
from typing import ClassVar

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.aggregation import Aggregation, MajorityVote
from .parts.step_size import Constant, StepSize
from .parts.weighting import Uniform, Weighting


@dataclass(kw_only=True, eq=False)
class SignSGD(PseudoGradientStrategy):
    """A step of fixed length in each coordinate, in the direction of most nodes; see the module's docstring."""

    named_part: ClassVar[str] = "aggregation"
    weighting: Weighting = Uniform()
    aggregation: Aggregation = MajorityVote()
    step_size: StepSize = Constant(0.01)
