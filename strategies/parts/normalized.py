"""Normalized averaging: no node counts more for having taken more steps."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from strategies.shared import protocol

from .aggregation import Mean, Spare
from .mask import Factors, Mask
from .updates import Updates


@dataclass(frozen=True)
class Normalized(Mean):
    """D = tau_eff sum_k alpha_k Delta_k / |a_k|_1,  tau_eff = sum_k alpha_k |a_k|_1 (FedNova).

    Wang, Liu, Liang, Joshi, Poor: *Tackling the Objective Inconsistency Problem in Heterogeneous Federated
    Optimization*, NeurIPS 2020, section 5. Node k's update is eta_l sum_i a_k,i g_k,i over its local steps;
    |a_k|_1 is the number of steps in plain SGD, and more with momentum. Nodes send it when asked
    (:class:`clients.EffectiveSteps`); one that does not is left out of the round, and named.

    Mask and step size see the normalized updates, tau_eff Delta_k / |a_k|_1. Buffers are averaged as they
    came. Equal |a_k|_1 give :class:`~strategies.Mean`, bit for bit. Who claims less than one step counts as
    having taken one.
    """

    asks_for: ClassVar[str | None] = protocol.EFFECTIVE_STEPS

    def with_factors(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: Spare = None
    ) -> tuple[Tensor, Factors | None]:
        """Return the normalized mean, and the mask's factors; the updates are normalized in place."""
        steps = updates.metrics[protocol.EFFECTIVE_STEPS].clamp_min(1)
        if bool((steps != steps[0]).any()):
            _scale_(updates, weights, steps)
        return super().with_factors(updates, weights, mask, spare)


def _scale_(updates: Updates, weights: Tensor, steps: Tensor) -> None:
    """Multiply each update by tau_eff / |a_k|_1, layer by layer where the weights are [K, L]."""
    scale = (steps @ weights.double()) / steps.view(-1, *[1] * (weights.ndim - 1))
    scale = scale.to(updates.deltas)
    if weights.ndim == 1:
        updates.deltas.mul_(scale[:, None])
        return
    for column, layer in enumerate(updates.layout.layers):
        if not layer.buffer:
            updates.deltas[:, layer.columns].mul_(scale[:, column, None])
