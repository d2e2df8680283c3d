"""FedProx on the node: the proximal term and gamma-inexactness; and the variance of a node's gradients.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated Optimization in Heterogeneous Networks*, MLSys 2020.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from flwr.app import ArrayRecord
from torch import Tensor
from torch.nn import Parameter

from clients.correction import Correction, GradientTransform, RoundStart, Tensors
from strategies.shared import protocol
from strategies.shared.arrays import to_float64
from strategies.shared.checks import require, require_count

from .uga import full_gradient


class GradientVariance(Correction):
    """Reports how much the gradient varies from step to step: for ``InverseVariance`` weights.

    The variance over the round's steps (divided by steps - 1; 0, for unknown, after a single one), averaged
    over all coordinates; Welford's algorithm. It observes the gradient before all corrections but SCAFFOLD's
    and Scaffnew's, which add the same in each step and leave the variance as it is.
    """

    config_key: ClassVar[str] = protocol.GRADIENT_VARIANCE

    def __init__(self, start: RoundStart | None = None) -> None:
        self.steps = 0
        self.means: list[Tensor] = []
        self.squares: list[Tensor] = []

    def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not self.means:
            self.means = [torch.zeros_like(g) for g in gradients]
            self.squares = [torch.zeros_like(g) for g in gradients]
        self.steps += 1
        for g, mean, square in zip(gradients, self.means, self.squares, strict=True):
            change = g - mean
            mean.add_(change, alpha=1 / self.steps)
            square.addcmul_(change, g - mean)

    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        coordinates = sum(square.numel() for square in self.squares)
        total = sum(float(to_float64(square).sum()) for square in self.squares)
        metrics[protocol.GRADIENT_VARIANCE] = total / coordinates / max(self.steps - 1, 1)
        return {}


class ProximalTerm(Correction):
    """g <- g + mu (w - a): the gradient of (mu/2) ||w - a||^2.

    Parameters
    ----------
    anchor : a, a tensor for each trained parameter
    mu : strength; 0 changes nothing
    """

    def __init__(self, anchor: Sequence[Tensor], mu: float) -> None:
        self.gradient_transform = GradientTransform(_add_proximal_gradient, [list(anchor)], (mu,))


class Proximal(ProximalTerm):
    """g <- g + mu (w - w_t): the gradient of (mu/2) ||w - w_t||^2 (FedProx, Algorithm 2).

    Parameters
    ----------
    start : the round's; its model is at w_t
    mu : strength, 0 or above; 0 is FedAvg
    """

    config_key: ClassVar[str] = protocol.PROXIMAL_MU

    def __init__(self, start: RoundStart, mu: float) -> None:
        self.check_settings(mu)
        super().__init__([p.detach().clone() for p in start.named.values()], mu)

    @staticmethod
    def check_settings(mu: float) -> None:
        require(0 <= mu < float("inf"), "client.corrections.proximal.mu", mu, "0 or above")

    @classmethod
    def begin(cls, start: RoundStart) -> "Proximal":
        """Return the term with the strength that the message states."""
        return cls(start, float(start.config[protocol.PROXIMAL_MU]))  # type: ignore[arg-type]


def _add_proximal_gradient(gradients: Tensors, parameters: Tensors, anchor: Tensors, mu: float) -> Tensors:
    return torch._foreach_add(gradients, torch._foreach_sub(parameters, anchor), alpha=mu)


class Inexact(Correction):
    """Ends a node's round at a gamma-inexact solution, and reports the gamma that it has reached.

    FedProx, definition 2: with h_k(w) = F_k(w) + (mu / 2) ||w - w_t||^2, w is a gamma-inexact solution where

        || grad h_k(w) || <= gamma || grad h_k(w_t) ||

    The gradients are over all of the node's examples, the model in evaluation mode; they cost a pass over the
    data each. What other corrections add to the gradient is no part of h_k. A node takes its epochs (or
    steps) at most, a straggler its own. Reduction: gamma = 0 takes them all.

    Parameters
    ----------
    start : the round's; its model is at w_t
    gamma : in [0, 1]; 0 never ends a round, and measures once, to report
    check_steps : after how many steps each it measures; None after each epoch
    mu : of the proximal term; None is the strategy's (``strategy=fedprox``), or 0
    """

    def __init__(
        self, start: RoundStart, gamma: float = 0.1, check_steps: int | None = None, mu: float | None = None
    ) -> None:
        self.check_settings(gamma, check_steps, mu)
        self.gamma, self.start = gamma, start
        strategy_mu = start.config.get(protocol.PROXIMAL_MU, 0.0)
        self.mu = float(strategy_mu) if mu is None else mu  # type: ignore[arg-type]
        size = len(start.examples)
        self.every = check_steps or -(-size // (start.batch_size or size))
        self.anchor = [p.detach().clone() for p in start.named.values()]
        self.first = self._norm(self.anchor)
        self.steps = self.has_measured = 0
        self.reached_gamma = 1.0

    @staticmethod
    def check_settings(gamma: float, check_steps: int | None, mu: float | None) -> None:
        require(0 <= gamma <= 1, "client.corrections.inexact.gamma", gamma, "in [0, 1]")
        require_count("client.corrections.inexact.check_steps", check_steps, optional=True)
        require(mu is None or mu >= 0, "client.corrections.inexact.mu", mu, "0 or above, or null")

    @staticmethod
    def describe_no_effect(
        steps: int, per_epoch: int, gamma: float, check_steps: int | None, mu: float | None
    ) -> str:
        if gamma == 0 or steps > (check_steps or per_epoch):
            return ""
        return (
            "looks after a node's last step, and ends no round: set client.local_epochs above 1, "
            "check_steps below the steps of a round, or gamma=0 to have the inexactness reported alone"
        )

    def should_stop(self, parameters: Sequence[Parameter]) -> bool:
        """Measure the inexactness when it is due; say whether gamma is reached."""
        self.steps += 1
        if self.gamma == 0 or self.steps % self.every:
            return False
        self._measure_inexactness(parameters)
        return self.reached_gamma <= self.gamma

    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        if self.has_measured < self.steps:
            self._measure_inexactness(parameters)
        metrics[protocol.INEXACTNESS] = self.reached_gamma
        return {}

    def _measure_inexactness(self, parameters: Sequence[Parameter]) -> None:
        norm = self._norm(parameters)
        self.reached_gamma = norm / self.first if self.first else float(norm > 0)
        self.has_measured = self.steps
        self.start.model.train()

    def _norm(self, parameters: Sequence[Tensor]) -> float:
        """Return || grad h_k || at the model's parameters."""
        start = self.start
        gradients = full_gradient(start.model, start.examples, start.task, start.batch_size)
        total = 0.0
        for g, p, anchor in zip(gradients, parameters, self.anchor, strict=True):
            total += float(to_float64(g.add_(p.detach() - anchor, alpha=self.mu)).square().sum())
        return total**0.5
