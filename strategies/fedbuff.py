"""FedBuff: the server steps whenever K updates are in its buffer, stale or not.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba: *Federated Learning with Buffered Asynchronous
Aggregation*, AISTATS 2022, Algorithm 1.

    w[t+1] = w[t] - eta (1/K) sum_k s(tau_k) Delta_k,    Delta_k = w[t - tau_k] - w_k,    s(tau) = (1 + tau)^-1/2

Fields: K is ``buffer_size``, the concurrency M_c ``nodes_per_round``, s the ``staleness``, eta the step size.
The rule is this package's with s(tau_k) Delta_k in place of Delta_k, so that any weighting, mask, server
optimizer and step size acts on the buffer. Deviations: idle nodes start at a server step
(:mod:`strategies.core.asynchronous`), and secure aggregation of the buffer is left out. Buffers of the model
are averaged as they are. The authors' simulator (FLSim) weights updates by examples, divides s by its value at
a mean staleness, and sums where Algorithm 1 divides by K, so its eta differs. Reduction: K = M_c is FedAvg
with uniform weights.
"""

from dataclasses import dataclass

from torch import Tensor

from .core.asynchronous import AsynchronousStrategy


@dataclass(kw_only=True, eq=False)
class FedBuff(AsynchronousStrategy):
    """FedAvg of the first K updates, which shrink with their staleness.

    Parameters
    ----------
    buffer_size : K; the paper takes 10, of many nodes at work
    """

    buffer_size: int = 2

    def keep_update(self, delta: Tensor, start: Tensor) -> Tensor:
        return delta

    def age_updates(self, vectors: Tensor, factors: Tensor) -> Tensor:
        return vectors * factors
