"""Aggregation (the sum over k): combine the nodes' pseudo-gradients.

The mean trusts every node. Byzantine-robust aggregations tolerate some that send anything at all:

    median        by coordinate (Yin, Chen, Ramchandran, Bartlett: *Byzantine-Robust Distributed Learning:
                  Towards Optimal Statistical Rates*, ICML 2018, definition 1)
    trimmed mean  by coordinate, without the largest and the smallest values (the same, definition 2)
    Krum          the update whose neighbours are nearest (:class:`Krum`)

Each takes the place of the mean in the update rule; mask, server optimizer and a constant step size go with
all of them. Buffers are aggregated in the same way. A node's number of examples is its own claim, so that
the three give each node one vote.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from strategies.shared import protocol
from strategies.shared.checks import require, require_count

from .layout import blocks, squared_distances, squared_norms
from .mask import Mask, MaskResult, NoMask
from .step_size import StepSize
from .updates import MissingReplies, NoStep, Part, Updates, require_pair
from .weighting import ByExamples, State, Uniform, Weighting, find_fault

SpareVectors = tuple[Tensor, Tensor] | None


class Aggregation(Part, ABC):
    """The sum over the nodes in the update rule."""

    required_metric: ClassVar[str | None] = None  # a metric that each node must send, a number, 0 or above

    @property
    def required_metrics(self) -> tuple[str, ...]:
        """The metrics without which a reply cannot be aggregated."""
        return (self.required_metric,) if self.required_metric else ()

    def require(self, weighting: Weighting, step_size: StepSize, nodes: int | None) -> None:
        """Raise ``ValueError`` for parts, or a number of nodes in a round, that it cannot go with."""
        return None

    def find_lack(self, updates: Updates) -> str | None:
        """Say what a round lacks to be aggregated; None when nothing is missing."""
        return None

    def weights(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return how much each node counts, given the weighting's ``weights``."""
        return weights

    @abstractmethod
    def aggregate(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: SpareVectors = None
    ) -> tuple[Tensor, MaskResult | None]:
        """Return the aggregate [P] and the mask's factors (see :meth:`~strategies.Mask.mean_and_mask`)."""

    @abstractmethod
    def aggregate_buffers(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return the aggregate [B] of the buffers."""


@dataclass(frozen=True)
class Mean(Aggregation):
    """D = sum_k alpha_k Delta_k, as every method of this package prints it."""

    sums: ClassVar[tuple[str, ...] | None] = ()

    def aggregate(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: SpareVectors = None
    ) -> tuple[Tensor, MaskResult | None]:
        """Return the weighted mean, and the mask's factors from the same pass."""
        if type(mask) is NoMask:
            return updates.mean(weights), None
        return mask.mean_and_mask(updates, weights, spare)

    def aggregate_buffers(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return the weighted mean."""
        return updates.mean_buffers(weights)


class Robust(Aggregation):
    """Base of the robust aggregations: every node counts the same."""

    def require(self, weighting: Weighting, step_size: StepSize, nodes: int | None) -> None:
        """Refuse weights, and a step size that any single node could drive."""
        name = f"aggregation={type(self).__name__}"
        if not isinstance(weighting, Uniform):
            raise ValueError(
                f"{name} gives every node the same weight, but weighting={type(weighting).__name__}: "
                "set weighting=uniform, or aggregation=mean"
            )
        if step_size.can_grow_by_one_node:
            raise ValueError(
                f"{name} tolerates hostile nodes, but step_size={type(step_size).__name__} grows with any "
                "node's update: set step_size=constant, or aggregation=mean"
            )


class Trimmed(Robust):
    """The mean of each coordinate without its largest and smallest values."""

    @abstractmethod
    def count_trimmed(self, nodes: int) -> int:
        """Return how many of the ``nodes`` values are left out at each end."""

    def aggregate(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: SpareVectors = None
    ) -> tuple[Tensor, MaskResult | None]:
        """Return the trimmed mean; the mask reads all updates."""
        middle, factors = mask.mean_and_mask(updates, weights, spare)
        return self._trimmed(updates.deltas, middle), factors

    def aggregate_buffers(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return the trimmed mean."""
        return self._trimmed(updates.buffers, torch.empty_like(updates.buffers[0]))

    def _trimmed(self, rows: Tensor, out: Tensor) -> Tensor:
        nodes = len(rows)
        cut = self.count_trimmed(nodes)
        for block in blocks(rows):
            torch.mean(rows[:, block].sort(0).values[cut : nodes - cut], 0, out=out[block])
        return out


@dataclass(frozen=True)
class TrimmedMean(Trimmed):
    """Without the floor(share K) largest and as many smallest values.

    Parameters
    ----------
    share : the paper's beta, in [0, 1/2): the share of hostile nodes that it tolerates. 0 is
        :class:`Mean` with uniform weights, to rounding
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a share that leaves nothing."""
        require(0 <= self.share < 0.5, "aggregation.share", self.share, "in [0, 0.5)")

    def count_trimmed(self, nodes: int) -> int:
        return math.floor(self.share * nodes + 1e-9)


@dataclass(frozen=True)
class Median(Trimmed):
    """The median; of an even number of values the mean of the middle two.

    It tolerates just under half of the nodes. With one or two nodes it is :class:`Mean`.
    """

    def count_trimmed(self, nodes: int) -> int:
        return (nodes - 1) // 2


# Krum: of the nodes' updates the one whose neighbours are nearest.
#
# Blanchard, El Mhamdi, Guerraoui, Stainer: *Machine Learning with Adversaries: Byzantine Tolerant Gradient
# Descent*, NeurIPS 2017, section 4.


@dataclass(frozen=True)
class Krum(Robust, Mean):
    """The mean of the updates with the lowest scores; a score sums the squares of the least distances.

        s_k = sum of ||Delta_k - Delta_j||^2 over the K - f - 2 nearest j != k

    Equal scores: the lower partition id first. The weights that a round shows are 1/m or 0.

    Parameters
    ----------
    num_hostile : f, how many hostile nodes a round may have; it needs K >= 2 f + 3 replies
    num_selected : m; 1 is Krum, more is Multi-Krum, all K of them the uniform :class:`Mean`
    """

    num_hostile: int = 1
    num_selected: int = 1

    def __post_init__(self) -> None:
        """Refuse counts out of range."""
        valid = isinstance(self.num_hostile, int) and self.num_hostile >= 0
        require(valid, "aggregation.num_hostile", self.num_hostile, "a whole number, 0 or above")
        require_count("aggregation.num_selected", self.num_selected)

    @property
    def min_replies(self) -> int:
        """How many replies a round needs."""
        return max(2 * self.num_hostile + 3, self.num_selected)

    def require(self, weighting: Weighting, step_size: StepSize, nodes: int | None) -> None:
        super().require(weighting, step_size, nodes)
        if nodes is not None and nodes < self.min_replies:
            raise ValueError(
                f"aggregation=Krum with num_hostile={self.num_hostile} and num_selected="
                f"{self.num_selected} needs {self.min_replies} nodes in a round, but there are {nodes}: ask "
                "more, expect fewer hostile, or set aggregation=mean"
            )

    def find_lack(self, updates: Updates) -> str | None:
        if (count := len(updates.partition_ids)) < self.min_replies:
            return f"{count} sound replies, aggregation=Krum needs {self.min_replies}"
        return None

    def weights(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return 1/m for the m nodes with the lowest scores, else 0."""
        deltas = updates.deltas
        distances = torch.stack([squared_distances(deltas, row) for row in deltas])
        last = len(deltas) - self.num_hostile - 1
        nearest = distances.sort(1).values[:, 1:last]  # the first is its own
        chosen = nearest.sum(1).argsort(stable=True)[: self.num_selected]
        return torch.zeros_like(weights).index_fill_(0, chosen, 1 / self.num_selected)


# Majority vote: the nodes' signs, and nothing else of them.


@dataclass(frozen=True)
class MajorityVote(Median):
    """D = sign(sum_k sign(Delta_k)) by coordinate; 0 where the votes are equal.

    Bernstein, Wang, Azizzadenesheli, Anandkumar: *signSGD: Compressed Optimisation for Non-Convex
    Problems*, ICML 2018, Algorithm 3. Every coordinate moves by eta, however small or large the updates
    are, so that just under half of the nodes can send anything at all. Buffers are no directions: theirs is
    the median. A single node gives the sign of its update.
    """

    def aggregate(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: SpareVectors = None
    ) -> tuple[Tensor, MaskResult | None]:
        """Return the vote; the mask reads all updates."""
        votes, factors = mask.mean_and_mask(updates, weights, spare)
        for block in blocks(updates.deltas):
            torch.sum(updates.deltas[:, block].sign(), 0, out=votes[block]).sign_()
        return votes, factors


# q-fair aggregation: nodes with a large loss count for more.


LOSS_OFFSET = 1e-10  # added to each loss, as the authors' code does


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
    required_metric: ClassVar[str | None] = protocol.START_LOSS

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require(0 <= self.q < float("inf"), "aggregation.q", self.q, "0 or above")
        valid = self.lipschitz is None or 0 < self.lipschitz < float("inf")
        require(valid, "aggregation.lipschitz", self.lipschitz, "a number above 0, or null")

    @property
    def required_metrics(self) -> tuple[str, ...]:
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
        if step_size.can_grow_by_one_node:
            raise ValueError(
                f"aggregation=Fair sets the length of the step, and so does step_size={type(step_size).__name__}: "
                "set step_size=constant, or aggregation=mean"
            )

    def weights(self, updates: Updates, weights: Tensor) -> Tensor:
        """Return alpha_k F_k^q over their sum."""
        if self.q == 0:
            return weights
        logs = weights.log() + self.q * _losses(updates).log()  # F^q alone may overflow
        return torch.softmax(logs, 0)

    def aggregate(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: SpareVectors = None
    ) -> tuple[Tensor, MaskResult | None]:
        """Return D, given :meth:`weights`, and the mask's factors."""
        mean, factors = super().aggregate(updates, weights, mask, spare)
        longer = self.q * float((weights * squared_norms(updates.deltas) / _losses(updates)).sum())
        if longer:
            mean.div_(1 + self._lipschitz(updates) * longer)
        return mean, factors

    def _lipschitz(self, updates: Updates) -> float:
        if self.lipschitz is not None:
            return self.lipschitz
        return 1 / max(float(updates.metrics[protocol.LEARNING_RATE].mean()), LOSS_OFFSET)


def _losses(updates: Updates) -> Tensor:
    return updates.metrics[protocol.START_LOSS] + LOSS_OFFSET


# Normalized averaging: no node counts more for having taken more steps.


@dataclass(frozen=True)
class Normalized(Mean):
    """D = tau_eff sum_k alpha_k Delta_k / |a_k|_1,  tau_eff = sum_k alpha_k |a_k|_1 (FedNova).

    Wang, Liu, Liang, Joshi, Poor: *Tackling the Objective Inconsistency Problem in Heterogeneous Federated
    Optimization*, NeurIPS 2020, section 5. Node k's update is eta_l sum_i a_k,i g_k,i over its local steps;
    |a_k|_1 is the number of steps in plain SGD, and more with momentum. Nodes send it when asked
    (:class:`clients.EffectiveSteps`); one that does not is left out of the round, and named.

    Mask and step size see the normalized updates, tau_eff Delta_k / |a_k|_1. Buffers are averaged as they
    came. Equal |a_k|_1 give :class:`~strategies.Mean`, bit for bit. A node that claims less than one step
    counts as having taken one.
    """

    required_metric: ClassVar[str | None] = protocol.EFFECTIVE_STEPS

    def aggregate(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: SpareVectors = None
    ) -> tuple[Tensor, MaskResult | None]:
        """Return the normalized mean, and the mask's factors; the updates are normalized in place."""
        steps = updates.metrics[protocol.EFFECTIVE_STEPS].clamp_min(1)
        if bool((steps != steps[0]).any()):
            _scale_(updates, weights, steps)
        return super().aggregate(updates, weights, mask, spare)


def _scale_(updates: Updates, weights: Tensor, steps: Tensor) -> None:
    """Multiply each update by tau_eff / |a_k|_1, layer by layer where the weights are [K, L]."""
    scale = (steps @ weights.double()) / steps.view(-1, *[1] * (weights.ndim - 1))
    scale = scale.to(updates.deltas)
    if weights.ndim == 1:
        updates.deltas.mul_(scale[:, None])
        return
    for column, layer in enumerate(updates.layout.layers):
        if not layer.is_buffer:
            updates.deltas[:, layer.columns].mul_(scale[:, column, None])


# The weights of a round, checked: a part of the user's own may give anything.


def needed_metrics(weighting: Weighting, aggregation: Aggregation) -> list[str]:
    """Return the names of the metrics without which a reply cannot be used."""
    return [
        *([weighting.required_metric] if weighting.required_metric else []),
        *aggregation.required_metrics,
    ]


def compute_weights(
    weighting: Weighting, aggregation: Aggregation, updates: Updates, state: State
) -> tuple[Tensor, State]:
    """Return the weights alpha[t], [K] or [K, L], and the weighting's next state.

    Raises
    ------
    Lacking : where the round lacks what the weighting or the aggregation needs
    NoStep : where the weights cannot be used
    """
    if lack := weighting.find_lack(updates) or aggregation.find_lack(updates):
        raise MissingReplies(lack)
    weights, state = require_pair("weighting", weighting, weighting(updates, state))
    if fault := find_fault(weights, updates):
        raise NoStep(f"weighting={type(weighting).__name__} gave {fault}")
    return aggregation.weights(updates, weights), state
