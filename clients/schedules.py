"""Schedules: the client learning rate as a function of the round."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from strategies.shared.checks import require, require_count


class Schedule(ABC):
    """A factor on the client learning rate."""

    @abstractmethod
    def __call__(self, server_round: int) -> float:
        """Return the factor in round 1, 2, ..."""


@dataclass(frozen=True)
class Exponential(Schedule):
    """gamma ** (round - 1 + ahead).

    Parameters
    ----------
    gamma : factor per round in (0, 1]; 1 keeps the learning rate constant
    ahead : 1 decays before the first round already, as FedExP's code does
    """

    gamma: float = 1.0
    ahead: int = 0

    def __post_init__(self) -> None:
        """Refuse a factor outside (0, 1] and a number of rounds that is none."""
        require(0 < self.gamma <= 1, "client.schedule.gamma", self.gamma, "in (0, 1]")
        whole = isinstance(self.ahead, int) and self.ahead >= 0
        require(whole, "client.schedule.ahead", self.ahead, "a whole number, 0 or above")

    def __call__(self, server_round: int) -> float:
        """Return the factor."""
        return float(self.gamma ** (server_round - 1 + self.ahead))


@dataclass(frozen=True)
class StepDecay(Schedule):
    """gamma ** floor((round - 1) / every): torch's StepLR, counted in rounds.

    Parameters
    ----------
    every : rounds between decays
    gamma : factor of each decay, in (0, 1]
    """

    every: int
    gamma: float

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require_count("client.schedule.every", self.every)
        require(0 < self.gamma <= 1, "client.schedule.gamma", self.gamma, "in (0, 1]")

    def __call__(self, server_round: int) -> float:
        """Return the factor."""
        return float(self.gamma ** ((server_round - 1) // self.every))
