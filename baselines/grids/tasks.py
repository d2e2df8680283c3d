"""Task: something for a Ray worker to do, and what becomes of it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .workers import Worker


class Task(ABC):
    """Something for a worker to do; whichever worker does it, the outcome is the same."""

    def __init__(self) -> None:
        self.deaths = 0  # of workers that were at it
        self.alone = False  # whether its worker is to have nothing else: one may have died of it
        self.seconds = math.inf  # that it took
        self.patience = math.inf  # seconds after which it is done in parts

    @abstractmethod
    def send(self, actor: Any) -> Any:
        """Have a worker ``do`` something, by its method's name; return the reference to the outcome."""

    @abstractmethod
    def take(self, outcome: Any) -> None:
        """Keep the outcome."""

    @abstractmethod
    def raised(self, error: Exception) -> None:
        """Go without an outcome: the worker raised."""

    @abstractmethod
    def lost(self, reason: str) -> None:
        """Go without an outcome: every worker that tried has died."""

    def parts(self) -> "Sequence[Task]":
        """Return what to do in its place where it went wrong as a whole."""
        return [self]


@dataclass(eq=False)
class Group:
    """Tasks that are awaited together.

    Parameters
    ----------
    left : how many are not finished
    aside : whether they are done only where a worker would have nothing else to do
    """

    left: int
    aside: bool = False


@dataclass(eq=False)
class Sent:
    """A task that is with a worker.

    Parameters
    ----------
    since : when the worker could begin with it
    """

    task: Task
    group: Group
    worker: Worker
    since: float
