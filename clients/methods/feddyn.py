"""FedDyn on the node: g <- g - g_k + alpha (w - w_t). The server's half is :mod:`strategies.feddyn`."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from flwr.app import ArrayRecord
from torch.nn import Parameter

from clients.correction import Correction, GradientTransform, RoundStart, Tensors
from strategies.shared import protocol
from strategies.shared.arrays import to_array_record, values_of

from .scaffold import ControlStore, counted_round


class Dynamic(Correction):
    """The gradient of -<g_k, w> + (alpha / 2) ||w - w_t||^2, and the renewal of g_k (Acar et al., 2021).

    g_k stays at the node, in Flower's ``context.state``. alpha = 0 is FedAvg.
    """

    config_key: ClassVar[str] = protocol.DYNAMIC_ALPHA
    remembers: ClassVar[bool] = True
    shares_all: ClassVar[bool] = True  # g_k of a private parameter would pull it back to where it began

    def __init__(self, start: RoundStart) -> None:
        named = start.named
        self.names = list(named)
        self.alpha = float(start.config[protocol.DYNAMIC_ALPHA])  # type: ignore[arg-type]
        self.server_round = int(start.config[protocol.SERVER_ROUND])  # type: ignore[arg-type]
        self.anchor = [p.detach().clone() for p in named.values()]
        self.store = ControlStore(start.state, counted_round(start.config, start.partition_id))
        variate = self.store.variate
        self.own = [
            torch.zeros_like(p) if variate is None else values_of(variate[name]).to(p)
            for name, p in zip(self.names, self.anchor, strict=True)
        ]
        self.gradient_transform = GradientTransform(
            _add_dynamic_terms, [self.own, self.anchor], (self.alpha,)
        )

    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        """Renew g_k in the node's state."""
        renewed = {
            name: own - self.alpha * (p.detach() - start)
            for name, own, p, start in zip(self.names, self.own, parameters, self.anchor, strict=True)
        }
        self.store.renew(to_array_record(renewed), self.server_round)
        return {}


def _add_dynamic_terms(
    gradients: Tensors,
    parameters: Tensors,
    own: Tensors,
    anchor: Tensors,
    alpha: float,
) -> Tensors:
    moved = torch._foreach_sub(parameters, anchor)
    return torch._foreach_add(torch._foreach_sub(gradients, own), moved, alpha=alpha)
