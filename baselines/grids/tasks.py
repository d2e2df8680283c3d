"""Task: something for a Ray worker to do, and what becomes of it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class Task(ABC):
    """Something for a worker to do; whichever worker does it, the outcome is the same."""

    def __init__(self) -> None:
        self.deaths = 0  # of workers that were at it
        self.seconds = math.inf  # that it took

    @abstractmethod
    def send(self, actor: Any) -> Any:
        """Give it to a worker; return the reference to the outcome."""

    @abstractmethod
    def take(self, outcome: Any) -> None:
        """Keep the outcome."""

    @abstractmethod
    def raised(self, error: Exception) -> None:
        """Go without an outcome: the worker raised."""

    @abstractmethod
    def lost(self, reason: str) -> None:
        """Go without an outcome: every worker that tried has died."""

    def again(self) -> "Sequence[Task]":
        """Return what to do in its place after its worker's death."""
        return [self]
