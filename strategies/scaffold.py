"""SCAFFOLD: control variates correct the drift of the nodes.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: *SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning*, ICML 2020, Algorithm 1. Node k keeps a variate c_k, the server the variate c; both start at 0.

    node:    y <- y - eta_l (g_k(y) - c_k + c)                         in each of its steps
             c_k+ = g_k(w[t])                                          option 1
             c_k+ = c_k - c + (w[t] - y) / (steps * eta_l)             option 2
    server:  w[t+1] = w[t] - eta (1/K) sum_k Delta_k                   weighting = Uniform
             c <- c + (K/N) (1/K) sum_k (c_k+ - c_k)                   N nodes in all

The server sends c as one more record and takes back the change of c_k; c_k itself stays at the node, in
Flower's ``context.state``. A change that did not arrive, or came in a round that failed, is not in c: the
server tells the node the next time, which goes back to the c_k before, so that c stays the mean of all c_k.
With a momentum optimiser the correction comes before the momentum, and option 2 divides by the gradients'
summed weights in place of the steps (:mod:`clients.methods.scaffold` says why).
Reduction: the first round, where all variates are 0, is FedAvg with uniform weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, ConfigScalar, RecordDict
from torch import Tensor

from .core.stateful_clients import StatefulClientsStrategy
from .parts.weighting import Uniform, Weighting
from .shared import protocol
from .shared.checks import require


@dataclass(kw_only=True, eq=False)
class Scaffold(StatefulClientsStrategy):
    """FedAvg with control variates; the nodes must be ours, or return a ``control`` record.

    Parameters
    ----------
    option : how a node renews its variate; 1 costs it one more pass over its data, 2 nothing, but its
        optimiser must be SGD
    """

    weighting: Weighting = Uniform()
    option: int = 2
    extra_record: ClassVar[str | None] = protocol.CONTROL

    _control: Tensor | None = field(default=None, init=False, repr=False)  # N c, the sum of all c_k, [P]

    def __post_init__(self) -> None:
        """Refuse an option that the paper does not have."""
        super().__post_init__()
        require(self.option in (1, 2), "strategy.option", self.option, "1 or 2")

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), protocol.CONTROL_OPTION: self.option}

    def make_content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        assert self.layout is not None
        if self._control is None:
            self._control = torch.zeros_like(self.parameters)
        self._control = self._control.to(self.parameters.device)  # a checkpoint's lies in host memory
        content = super().make_content(server_round, arrays, config)
        content[protocol.CONTROL] = self.layout.record(self._control / self.population_size(), None)
        return content

    def clear_sum(self) -> None:
        self._control = None

    def absorb_extra(self, server_round: int, partition_ids: Sequence[int], extra: Tensor) -> None:
        """Renew the server variate: N c <- N c + sum_k (c_k+ - c_k); N may grow as nodes connect."""
        assert self._control is not None
        self._control = self._control + extra.sum(0)
        self.count_changes(server_round, partition_ids)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"controls": self._control}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._control = state["controls"]
