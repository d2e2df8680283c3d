"""FedAsync: the server mixes each model that arrives with its own.

Xie, Koyejo, Gupta: *Asynchronous Federated Optimization*, 2019 (arXiv 1903.03934), Algorithm 1.

    w[t+1] = (1 - a_t) w[t] + a_t w_k = w[t] - a_t (w[t] - w_k),    a_t = alpha s(tau_k)

w_k is what node k has made of w[t - tau_k]. So the pseudo-gradient is a_t (w[t] - w_k), from the model of
today and not from that which the node was sent, and any other part acts on it. Fields: ``alpha``, the
``staleness`` s; ``nodes_per_round`` is how many nodes are at work at once. Nodes of the paper minimise their
loss plus (rho/2) ||w - w[t - tau]||^2: that is ``corrections=proximal``. Buffers of the model are mixed by a_t, too.
Deviation: the paper's server and scheduler run freely, and its experiments draw tau; here it follows from
the clock, or from real nodes (:mod:`strategies.core.asynchronous`). Reduction: with alpha = 1 and one node at
work it is that node's own training, one node after another.
"""

from dataclasses import dataclass

from torch import Tensor

from .core.asynchronous import AsynchronousStrategy
from .shared.checks import require


@dataclass(kw_only=True, eq=False)
class FedAsync(AsynchronousStrategy):
    """A running mean of the nodes' models, one at a time.

    Parameters
    ----------
    alpha : how much a model counts that is not stale, above 0, at most 1
    """

    alpha: float = 0.6

    def __post_init__(self) -> None:
        """Refuse a share out of range, and a buffer, which would be another method."""
        super().__post_init__()
        require(0 < self.alpha <= 1, "strategy.alpha", self.alpha, "above 0, at most 1")
        which = "1 under strategy=FedAsync (strategy=fedbuff has a buffer)"
        require(self.buffer_size == 1, "strategy.buffer_size", self.buffer_size, which)

    def keep_update(self, delta: Tensor, start: Tensor) -> Tensor:
        return start - delta

    def age_updates(self, vectors: Tensor, factors: Tensor) -> Tensor:
        return (self.parameters - vectors) * (self.alpha * factors)

    def age_buffers(self, buffers: Tensor, factors: Tensor) -> Tensor:
        return self.buffers + (buffers - self.buffers) * (self.alpha * factors)
