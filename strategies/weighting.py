"""Weighting (alpha): how much does each node count in the mean pseudo-gradient?

A weighting maps one round's updates to weights that sum to one over the nodes: [K], or [K, L] when
they differ from layer to layer. What it remembers between rounds goes in and out as ``state``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from .updates import Updates

State = dict[str, Tensor]


class Weighting(ABC):
    """The letter alpha of the update rule."""

    @abstractmethod
    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return the weights and the state of the next round; ``state`` is empty at the start."""


@dataclass(frozen=True)
class Uniform(Weighting):
    """alpha_k = 1/K over the nodes that replied (FedExP, Algorithm 1)."""

    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return 1/K for each node."""
        nodes = len(updates.partition_ids)
        return torch.full((nodes,), 1 / nodes, dtype=torch.float64), state


@dataclass(frozen=True)
class ByExamples(Weighting):
    """alpha_k = n_k / sum n over the nodes that replied (McMahan et al. 2017, Algorithm 1)."""

    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return each node's share of the examples."""
        return updates.num_examples / updates.num_examples.sum(), state
