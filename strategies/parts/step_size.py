"""StepSize (eta): the length of the server's step along the direction, of all layers or of each."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from strategies.shared import protocol
from strategies.shared.checks import require

from .layout import Layout, squared_norms
from .updates import NoStep, Part, Updates, describe_value, require_by_layer


class StepSize(Part, ABC):
    """The letter eta of the update rule."""

    can_grow_by_one_node: ClassVar[bool] = True  # whether any single node can make it grow

    @abstractmethod
    def __call__(
        self, server_round: int, updates: Updates, weights: Tensor, mean: Tensor
    ) -> float | Tensor:
        """Return eta_t for the round's updates, their weights and their mean [P].

        A number, or one for each array of ``updates.layout.parameters``, [L]. ``updates.start`` is w_t.
        """


@dataclass(frozen=True)
class Constant(StepSize):
    """eta_t = eta, the server learning rate; eta = 1 is FedAvg."""

    eta: float = 1.0
    sums: ClassVar[tuple[str, ...] | None] = ()
    can_grow_by_one_node: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse a server learning rate that is not positive."""
        require(0 < self.eta < float("inf"), "step_size.eta", self.eta, "a number above 0")

    def __call__(self, server_round: int, updates: Updates, weights: Tensor, mean: Tensor) -> float:
        """Return eta."""
        return self.eta


@dataclass(frozen=True)
class Extrapolated(StepSize):
    """FedExP's step size (Jhunjhunwala et al., ICLR 2023, Algorithm 1).

        eta_t = max{1, sum_k alpha_k ||Delta_k||^2 / (2 (||D||^2 + epsilon_t))},  D = sum_k alpha_k Delta_k

    With uniform weights alpha_k = 1/M this is the paper's
    max{1, sum_k ||Delta_k||^2 / (2 M (||D||^2 + epsilon))}. Where weights differ from layer to layer,
    each layer's squared norm counts with its own weight.

    Parameters
    ----------
    epsilon : keeps eta small when the mean nearly vanishes; epsilon to infinity is FedAvg (with ``clamp``)
    epsilon_decay : epsilon_t = epsilon * epsilon_decay ** t in round t = 1, 2, ...; the paper's epsilon is
        constant (1), the authors' code decays by 0.998 ** 2 before every round. Above 1 it grows, so that
        steps become FedAvg's as the model converges (section 3.1.4)
    clamp : False leaves out the maximum with 1, as the authors' synthetic notebook does
    """

    sums: ClassVar[tuple[str, ...] | None] = ("squared-norms",)
    epsilon: float = 1e-3
    epsilon_decay: float = 1.0
    clamp: bool = True

    def __post_init__(self) -> None:
        """Refuse a negative epsilon and a decay that is not positive."""
        require(self.epsilon >= 0, "step_size.epsilon", self.epsilon, "0 or above")
        decay = self.epsilon_decay
        require(0 < decay < float("inf"), "step_size.epsilon_decay", decay, "a number above 0")

    def __call__(
        self, server_round: int, updates: Updates, weights: Tensor, mean: Tensor
    ) -> float | Tensor:
        """Return eta_t; 1 where every update is zero and epsilon is 0."""
        total = updates.sum("squared-norms", weights)
        return self._ratio(server_round, float(total), float(squared_norms(mean)))

    def _ratio(self, server_round: int, total: float, of_mean: float) -> float:
        """Return eta_t for the sum of the squared norms, and the mean's."""
        denominator = 2 * (of_mean + self._epsilon(server_round))
        if denominator == 0:
            return 1.0
        return max(1.0, total / denominator) if self.clamp else total / denominator

    def _epsilon(self, server_round: int) -> float:
        try:
            return self.epsilon * self.epsilon_decay**server_round
        except OverflowError:  # it has grown too large
            return float("inf") if self.epsilon else 0.0


@dataclass(frozen=True)
class ExtrapolatedByLayer(Extrapolated):
    """FedExP's step size for each parameter array by itself; no paper's, but FedExP's rule layer by layer.

        eta_t,l = max{1, sum_k alpha_k ||Delta_k,l||^2 / (2 (||D_l||^2 + epsilon_t))}

    A model of one array has :class:`Extrapolated`'s step; epsilon to infinity is FedAvg (with ``clamp``).
    """

    def __call__(self, server_round: int, updates: Updates, weights: Tensor, mean: Tensor) -> Tensor:
        """Return eta_t,l, [L]."""
        etas = []
        for column, layer in enumerate(updates.layout.layers):
            if not layer.is_buffer:
                alpha = weights if weights.ndim == 1 else weights[:, column]
                norms = squared_norms(updates.deltas[:, layer.columns])
                of_mean = float(squared_norms(mean[layer.columns]))
                etas.append(self._ratio(server_round, float(alpha.to(norms) @ norms), of_mean))
        return torch.tensor(etas, dtype=torch.float64)


def compute_step_size(
    step_size: StepSize, server_round: int, updates: Updates, weights: Tensor, mean: Tensor
) -> float | Tensor:
    """Return eta[t], a number, or by layer [L]; raise ``NoStep`` where what the step size gave is neither."""
    result = step_size(server_round, updates, weights, mean)
    if isinstance(result, Tensor) and result.numel() != 1:
        return require_by_layer("step_size", step_size, result, updates.layout)
    blame = f"step_size={type(step_size).__name__} gave"
    try:
        eta = float(result)
    except (TypeError, ValueError) as error:
        raise NoStep(f"{blame} {describe_value(result)}, expected a number") from error
    if not math.isfinite(eta):
        raise NoStep(f"{blame} {eta}")
    return eta


def step_size_metrics(eta: float | Tensor, layout: Layout) -> dict[str, float]:
    """Return ``step-size``, or ``step-size-<array>`` of each parameter array where they differ."""
    if not isinstance(eta, Tensor):
        return {protocol.STEP_SIZE: eta}
    names = (f"{protocol.STEP_SIZE}-{layer.name}" for layer in layout.parameters)
    return dict(zip(names, eta.tolist(), strict=True))
