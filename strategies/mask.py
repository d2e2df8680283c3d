"""Mask (m): on which coordinates do the nodes agree?

A mask maps one round's updates to a factor in [0, 1] per coordinate, [P], that multiplies the final
direction; None leaves the direction as it is.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from .updates import Updates


class Mask(ABC):
    """The letter m of the update rule."""

    @abstractmethod
    def __call__(self, updates: Updates) -> Tensor | None:
        """Return the factor per coordinate [P], or None for all ones."""


@dataclass(frozen=True)
class NoMask(Mask):
    """m = 1 everywhere."""

    def __call__(self, updates: Updates) -> None:
        """Return None: nothing is masked."""
        return None
