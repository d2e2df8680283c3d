"""FedDyn: dynamic regularisation, so that the nodes' optima are the server's.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama: *Federated Learning Based on Dynamic
Regularization*, ICLR 2021, Algorithm 1. Node k keeps a gradient g_k, the server h; both start at 0.

    node:    minimise F_k(w) - <g_k, w> + (alpha / 2) ||w - w[t]||^2, by its local steps
             g_k <- g_k - alpha (w_k - w[t]) = g_k + alpha Delta_k
    server:  h <- h + alpha (1/N) sum_k Delta_k              N nodes in all, K of them in the round
             w[t+1] = w[t] - (1/K) sum_k Delta_k - h / alpha           weighting = Uniform

s = h / alpha is kept here: s <- s + (K/N) D, w[t+1] = w[t] - D - s. With other parts (a mask, eta) D is the
step that they make. As in SCAFFOLD, a change of g_k that did not arrive is taken back by the node.
Deviation: the nodes take their steps, not all the way to the minimum. Reduction: alpha = 0 is FedAvg with
uniform weights.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from flwr.app import ConfigScalar
from torch import Tensor

from .parts.updates import Updates
from .parts.weighting import Uniform, Weighting
from .remembering import Remembering
from .shared import protocol
from .shared.checks import require


@dataclass(kw_only=True, eq=False)
class FedDyn(Remembering):
    """FedAvg with dynamic regularisation; the nodes must be ours.

    Parameters
    ----------
    alpha : strength, 0 or above
    """

    weighting: Weighting = Uniform()
    alpha: float = 0.1

    _sum: Tensor | None = field(default=None, init=False, repr=False)  # h / alpha, [P]

    def __post_init__(self) -> None:
        """Refuse a negative alpha."""
        super().__post_init__()
        require(0 <= self.alpha < float("inf"), "strategy.alpha", self.alpha, "0 or above")

    def asks(self) -> dict[str, ConfigScalar]:
        return {**super().asks(), protocol.DYNAMIC_ALPHA: float(self.alpha)}

    def _step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        before = self._parameters
        shown, weights = super()._step(server_round, updates)
        if self.alpha > 0:
            step = before - self._parameters
            kept = torch.zeros_like(step) if self._sum is None else self._sum.to(step.device)
            self._sum = kept.add(step, alpha=len(weights) / self._population())
            self._parameters = self._parameters - self._sum
        self._count(server_round, updates.partition_ids)
        return shown, weights

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"sum": self._sum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._sum = state["sum"]
