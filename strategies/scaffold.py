"""SCAFFOLD: control variates correct the drift of the nodes.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: *SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning*, ICML 2020, Algorithm 1. Node k keeps a variate c_k, the server the variate c; both start at 0.

    node:    y <- y - eta_l (g_k(y) - c_k + c)                         in each of its steps
             c_k+ = g_k(w[t])                                          option 1
             c_k+ = c_k - c + (w[t] - y) / (steps * eta_l)             option 2
    server:  w[t+1] = w[t] - eta (1/K) sum_k Delta_k                   weighting = Uniform
             c <- c + (K/N) (1/K) sum_k (c_k+ - c_k)                   N nodes in all

The server sends c as one more record and takes back the change of c_k; c_k itself stays at the node, in
Flower's ``context.state``. A change that did not arrive, or came in a round that failed, is not in c. The next
message tells the node, which goes back to the c_k before, so that c stays the mean of all c_k.
With a momentum optimiser the correction comes before the momentum, and option 2 divides by the gradients'
summed weights in place of the steps (:mod:`clients.methods.scaffold` says why).
Reduction: the first round, where all variates are 0, is FedAvg with uniform weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from flwr.app import ConfigScalar
from torch import Tensor

from .core.stateful_clients import StatefulClientsStrategy
from .parts.weighting import Uniform, Weighting
from .shared import protocol
from .shared.checks import require


@dataclass(kw_only=True, eq=False)
class Scaffold(StatefulClientsStrategy):
    """FedAvg with control variates; needs this project's ClientApp, or one that returns ``control``.

    Parameters
    ----------
    option : how a node renews its variate; 1 costs it one more pass over its data, 2 nothing, but its
        optimiser must be SGD
    """

    weighting: Weighting = Uniform()
    option: int = 2
    sent_record: ClassVar[str | None] = protocol.CONTROL  # c; what is kept is N c, the sum of all c_k
    extra_record: ClassVar[str | None] = protocol.CONTROL

    def __post_init__(self) -> None:
        """Refuse an option that the paper does not have."""
        super().__post_init__()
        require(self.option in (1, 2), "strategy.option", self.option, "1 or 2")

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), protocol.CONTROL_OPTION: self.option}

    def vector_to_send(self) -> Tensor:
        return self.server_vector / self.population_size()

    def clear_sum(self) -> None:
        self.server_vector = None

    def absorb_extra(self, server_round: int, partition_ids: Sequence[int], extra: Tensor) -> None:
        """Renew the server variate: N c <- N c + sum_k (c_k+ - c_k); N may grow as nodes connect."""
        self.server_vector = self.server_vector + extra.sum(0)
        self.count_changes(server_round, partition_ids)
