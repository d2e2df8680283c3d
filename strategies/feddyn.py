"""FedDyn: dynamic regularisation, so that the nodes' optima are the server's.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama: *Federated Learning Based on Dynamic
Regularization*, ICLR 2021, Algorithm 1. Node k keeps a gradient g_k, the server h; both start at 0.

    node:    minimise F_k(w) - <g_k, w> + (alpha / 2) ||w - w[t]||^2, by its local steps
             g_k <- g_k - alpha (w_k - w[t]) = g_k + alpha Delta_k
    server:  h <- h + alpha (1/N) sum_k Delta_k              N nodes in all, K of them in the round
             w[t+1] = w[t] - (1/K) sum_k Delta_k - h / alpha           weighting = Uniform

s = h / alpha is used here, and N s kept, as N may grow while nodes connect: N s <- N s + sum_k Delta_k,
w[t+1] = w[t] - D - s. Other parts (a mask, a median, weights, eta) make another step D, and leave s as it
is, the mean of the g_k over alpha. So the model still comes to rest where the unweighted mean of the
gradients is 0. Privacy and compression change the updates themselves: s and the g_k would no longer agree,
so both are refused. (Error feedback makes up for what was left out, but not where a reply is lost.) As in
SCAFFOLD, a node takes back a change of g_k that did not arrive. Deviation: nodes take a number of steps, not
all the way to the minimum. Reduction: alpha = 0 is FedAvg with uniform weights.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from flwr.app import ConfigScalar
from torch import Tensor

from .core.stateful_clients import StatefulClientsStrategy
from .parts.privacy import NoPrivacy
from .parts.updates import Updates
from .parts.weighting import Uniform, Weighting
from .shared import protocol
from .shared.checks import require
from .shared.compression import NoCompression


@dataclass(kw_only=True, eq=False)
class FedDyn(StatefulClientsStrategy):
    """FedAvg with dynamic regularisation; needs this project's ClientApp.

    Parameters
    ----------
    alpha : strength, 0 or above
    """

    sums: ClassVar[tuple[str, ...] | None] = ()
    is_uniform_mean: ClassVar[bool] = True  # the updates, whatever the weighting
    weighting: Weighting = Uniform()
    alpha: float = 0.1

    _sum: Tensor | None = field(default=None, init=False, repr=False)  # N h / alpha, [P]

    def __post_init__(self) -> None:
        """Refuse a negative alpha, and what would part the server's sum from what the nodes keep."""
        super().__post_init__()
        require(0 <= self.alpha < float("inf"), "strategy.alpha", self.alpha, "0 or above")
        why = "under strategy=feddyn, whose server sums up what the nodes keep"
        require(type(self.privacy) is NoPrivacy, "privacy", type(self.privacy).__name__, f"none {why}")
        none = type(self.compression) is NoCompression
        require(none, "compression", type(self.compression).__name__, f"none {why}")

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), protocol.DYNAMIC_ALPHA: float(self.alpha)}

    def required_reply_keys(self) -> dict[str, str]:
        required = {protocol.KEPT: "does not keep FedDyn's gradient"} if self.alpha > 0 else {}
        return super().required_reply_keys() | required

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        count = len(updates.partition_ids)
        mean = updates.mean(torch.ones(count, dtype=torch.float64) / count) if self.alpha > 0 else None
        metrics, weights = super().take_step(server_round, updates)
        if mean is not None:
            total = torch.zeros_like(mean) if self._sum is None else self._sum.to(mean.device)
            self._sum = total.add(mean, alpha=count)
            self.parameters = self.parameters.sub(self._sum, alpha=1 / self.population_size())
        self.count_changes(server_round, updates.partition_ids)
        return metrics, weights

    def clear_sum(self) -> None:
        self._sum = None

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"sums": self._sum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._sum = state["sums"]
