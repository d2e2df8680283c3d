"""Weighting (alpha): how much does each node count in the mean pseudo-gradient?

A weighting maps one round's updates to weights that sum to one over the nodes: [K], or [K, L] when
they differ from layer to layer. What it remembers between rounds goes in and out as ``state``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from strategies.shared import protocol

from .layout import Layout
from .updates import Updates

State = dict[str, Tensor]


class Weighting(ABC):
    """The letter alpha of the update rule."""

    of_mean: ClassVar[bool] = False  # whether :meth:`counts` says all of it; subclasses say so anew
    asks_for: ClassVar[str | None] = None  # a metric that each node must send, a number, 0 or above

    @property
    def examples_key(self) -> str:
        """The metric in which nodes say on how many examples they worked."""
        return protocol.NUM_EXAMPLES

    def check(self, layout: Layout) -> None:
        """Raise ``ValueError`` for a model that this weighting cannot work with."""
        return None

    def require_nodes(self, num_nodes: int) -> None:
        """Raise ``ValueError`` where ``num_nodes`` in all cannot be weighted."""
        return None

    def require_members(self, partition_ids: Sequence[int]) -> None:
        """Raise ``ValueError`` where a group of these nodes cannot be weighted."""
        return None

    def lacks(self, updates: Updates) -> str | None:
        """Say what a round lacks to be weighted; None when the weights can be computed."""
        return None

    @abstractmethod
    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return the weights and the state of the next round; ``state`` is empty at the start."""

    def counts(self, num_examples: float) -> float:
        """Return what the weight of a node with so many examples is in proportion to, if to that alone."""
        raise NotImplementedError

    def metrics(self, updates: Updates, weights: Tensor, state: State) -> dict[str, float]:
        """Return what a round's metrics show of the weights and the state that it ended with."""
        return {}


@dataclass(frozen=True)
class Uniform(Weighting):
    """alpha_k = 1/K over the nodes that replied (FedExP, Algorithm 1)."""

    of_mean: ClassVar[bool] = True

    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return 1/K for each node."""
        nodes = len(updates.partition_ids)
        return torch.full((nodes,), 1 / nodes, dtype=torch.float64), state

    def counts(self, num_examples: float) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class ByExamples(Weighting):
    """alpha_k = n_k / sum n over the nodes that replied (McMahan et al. 2017, Algorithm 1).

    Parameters
    ----------
    key : the metric of a reply that is n_k, also in the means of metrics; 0 or above
    """

    key: str = field(default=protocol.NUM_EXAMPLES, repr=False)
    of_mean: ClassVar[bool] = True

    @property
    def examples_key(self) -> str:
        return self.key

    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return each node's share of the examples."""
        return updates.num_examples / updates.num_examples.sum(), state

    def counts(self, num_examples: float) -> float:
        """Return the number of examples."""
        return num_examples


@dataclass(frozen=True)
class InverseVariance(Weighting):
    """alpha_k = (1 / v_k) / sum (1 / v): precision weighting (Reyes et al. 2021; thesis eq. 2.7).

    v_k is the variance of the node's gradient over its local steps, averaged over the coordinates, which
    the node sends when asked (:class:`clients.corrections.GradientVariance`). A variance of 0 tells
    nothing, as it is that of a single step: the node counts as the median of the others. Equal variances
    give :class:`Uniform`.
    """

    asks_for: ClassVar[str | None] = protocol.GRADIENT_VARIANCE

    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return each node's share of the precision."""
        variance = updates.metrics[protocol.GRADIENT_VARIANCE]
        known = variance[variance > 0]
        if len(known) == 0:
            return Uniform()(updates, state)
        precision = 1 / variance.where(variance > 0, known.median()).clamp_min(1e-12 * known.max())
        precision = precision.clamp_max(1e30)
        return precision / precision.sum(), state
