"""Staleness (s): how much an update counts that began tau server steps ago.

Xie, Koyejo, Gupta: *Asynchronous Federated Optimization*, 2019 (arXiv 1903.03934), section 5.2. An update
that is not stale counts fully: s(0) = 1.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from strategies.shared.checks import require


class Staleness(ABC):
    """The factor s(tau)."""

    @abstractmethod
    def __call__(self, tau: Tensor) -> Tensor:
        """Return s(tau) of each update, [K] in [0, 1]; tau is [K], whole numbers in float64."""


@dataclass(frozen=True)
class ConstantStaleness(Staleness):
    """s = 1."""

    def __call__(self, tau: Tensor) -> Tensor:
        return tau.new_ones(tau.shape)


@dataclass(frozen=True)
class PolynomialStaleness(Staleness):
    """s = (1 + tau)^-a; a = 0 is constant, and FedBuff takes a = 1/2."""

    a: float = 0.5

    def __post_init__(self) -> None:
        """Refuse an exponent by which stale updates would count for more."""
        require(0 <= self.a < float("inf"), "staleness.a", self.a, "0 or above")

    def __call__(self, tau: Tensor) -> Tensor:
        return (1 + tau) ** -self.a


@dataclass(frozen=True)
class HingeStaleness(Staleness):
    """s = 1 where tau <= b, else 1 / (a (tau - b) + 1); a = 0 is constant."""

    a: float = 10.0
    b: float = 4.0

    def __post_init__(self) -> None:
        """Refuse numbers by which stale updates would count for more."""
        for name in ("a", "b"):
            value = getattr(self, name)
            require(0 <= value < float("inf"), f"staleness.{name}", value, "0 or above")

    def __call__(self, tau: Tensor) -> Tensor:
        return 1 / (self.a * (tau - self.b).clamp_min(0) + 1)
