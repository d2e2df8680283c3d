"""q-fair aggregation: nodes with a large loss count for more."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from strategies.shared import protocol
from strategies.shared.checks import require

from .aggregation import Mean, Spare
from .mask import Factors, Mask
from .norms import squared_norms
from .step_size import StepSize
from .updates import Updates
from .weighting import ByExamples, Uniform, Weighting

LEAST = 1e-10  # added to each loss, as the authors' code does


@dataclass(frozen=True)
class Fair(Mean):
    """D = sum_k alpha_k F_k^q Delta_k / sum_k alpha_k (F_k^q + q L F_k^(q-1) ||Delta_k||^2) (q-FedAvg).

    Li, Sanjabi, Beirami, Smith: *Fair Resource Allocation in Federated Learning*, ICLR 2020, Algorithm 2,
    where a node's update is L Delta_k: numerator and denominator are divided by L here. F_k is node k's
    loss at the model that it was sent, plus 1e-10, which it sends when asked (:class:`clients.StartLoss`);
    a node that does not is left out of the round, and named. Buffers are averaged with weights alpha_k
    F_k^q over their sum. q = 0 is :class:`~strategies.Mean`, bit for bit.

    Parameters
    ----------
    q : 0 or above; the larger, the more even the nodes' losses are to become
    lipschitz : L, above 0; None takes 1 / eta_l, as the paper does, of the mean rate that the nodes report
    """

    q: float = 1.0
    lipschitz: float | None = None
    asks_for: ClassVar[str | None] = protocol.START_LOSS

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require(0 <= self.q < float("inf"), "aggregation.q", self.q, "0 or above")
        valid = self.lipschitz is None or 0 < self.lipschitz < float("inf")
        require(valid, "aggregation.lipschitz", self.lipschitz, "a number above 0, or null")

    @property
    def needs(self) -> tuple[str, ...]:
        """The loss, and the learning rate where it gives L."""
        rate = () if self.lipschitz else (protocol.LEARNING_RATE,)
        return (protocol.START_LOSS, *rate)

    def require(self, weighting: Weighting, step_size: StepSize, nodes: int | None) -> None:
        """Refuse what else would change the weights, and another rule for the step's length."""
        if type(weighting) not in (Uniform, ByExamples):
            raise ValueError(
                "aggregation=Fair weighs nodes by their loss, but weighting="
                f"{type(weighting).__name__}: set weighting=uniform or examples, or aggregation=mean"
            )
        if step_size.of_all_updates:
            raise ValueError(
                f"aggregation=Fair says how far to go, and so does step_size={type(step_size).__name__}: "
                "set step_size=constant, or aggregation=mean"
            )

    def weights(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return alpha_k F_k^q over their sum."""
        if self.q == 0:
            return weights
        logs = weights.log() + self.q * _losses(updates).log()  # F^q alone may be beyond all numbers
        return torch.softmax(logs, 0)

    def with_factors(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: Spare = None
    ) -> tuple[Tensor, Factors | None]:
        """Return D, given :meth:`weights`, and the mask's factors."""
        mean, factors = super().with_factors(updates, weights, mask, spare)
        longer = self.q * float((weights * squared_norms(updates.deltas) / _losses(updates)).sum())
        if longer:
            mean.div_(1 + self._lipschitz(updates) * longer)
        return mean, factors

    def _lipschitz(self, updates: Updates) -> float:
        if self.lipschitz is not None:
            return self.lipschitz
        return 1 / max(float(updates.metrics[protocol.LEARNING_RATE].mean()), LEAST)


def _losses(updates: Updates) -> Tensor:
    return updates.metrics[protocol.START_LOSS] + LEAST
