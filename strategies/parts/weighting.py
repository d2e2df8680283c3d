"""Weighting (alpha): the weight of each node in the mean pseudo-gradient.

A weighting maps one round's updates to weights that sum to one over the nodes: [K], or [K, L] when
they differ from layer to layer. What it remembers between rounds goes in and out as ``state``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from strategies.shared import protocol
from strategies.shared.checks import require
from strategies.shared.linalg import Mode, effective_rank, mean_over_unfoldings, stable_rank

from .layout import Layer, Layout, squared_distances, squared_norms
from .updates import Part, Updates, describe_value

State = dict[str, Tensor]


class Weighting(Part, ABC):
    """The letter alpha of the update rule."""

    required_metric: ClassVar[str | None] = None  # a metric that each node must send, a number, 0 or above

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

    def find_lack(self, updates: Updates) -> str | None:
        """Say what a round lacks to be weighted; None when the weights can be computed."""
        return None

    @abstractmethod
    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return the weights and the state of the next round; ``state`` is empty at the start."""

    def counts(self, num_examples: float) -> float:
        """Return what a node's weight is proportional to; a weighting with ``sums = ()`` defines it."""
        raise NotImplementedError

    def metrics(self, updates: Updates, weights: Tensor, state: State) -> dict[str, float]:
        """Return what a round's metrics show of the weights and the state that it ended with."""
        return {}


@dataclass(frozen=True)
class Uniform(Weighting):
    """alpha_k = 1/K over the nodes that replied (FedExP, Algorithm 1)."""

    sums: ClassVar[tuple[str, ...] | None] = ()

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
    sums: ClassVar[tuple[str, ...] | None] = ()

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
    the node sends when asked (:class:`clients.methods.fedprox.GradientVariance`). A variance of 0 tells
    nothing, as it is that of a single step: the node counts as the median of the others. Equal variances
    give :class:`Uniform`.
    """

    required_metric: ClassVar[str | None] = protocol.GRADIENT_VARIANCE

    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return each node's share of the precision."""
        variance = updates.metrics[protocol.GRADIENT_VARIANCE]
        known = variance[variance > 0]
        if len(known) == 0:
            return Uniform()(updates, state)
        precision = 1 / variance.where(variance > 0, known.median()).clamp_min(1e-12 * known.max())
        precision = precision.clamp_max(1e30)
        return precision / precision.sum(), state


# Weights by the rank of what a node has learnt: FedER and its kin.
#
# A. Fu's thesis on federated effective rank (FedER, University of Toronto, 2022), Algorithms 3 and 4. For
# each convolutional layer l and node k, with er the effective rank of the node's weight after EVBMF
# (:mod:`strategies.shared.linalg`),
#
#     er_l,k    = max(floor, effective rank of W_l,k)
#     alpha_l,k = er_l,k / sum_k er_l,k                                                     (3.1)
#
# The other layers (biases, normalisation, running statistics, the classifier) take the alpha of the last
# convolutional layer before them, in ``state_dict`` order (Algorithm 4), or 1/K (Algorithm 3). Layers before the
# first convolution take 1/K.
#
# Readings where the thesis is silent: the rank of a layer is the mean over its two unfoldings (``unfolding``
# chooses one, or their root mean square, as eq. 2.10 has it "to evaluate an entire layer"); the floor holds in
# both places where Algorithm 4 computes er (it is printed in one), since otherwise the weights would not sum to
# one. Reduction: nodes of equal rank, identical ones for instance, have weight 1/K, as
# :class:`~strategies.Uniform`.


LARGEST_KERNEL = 11
LAYOUTS = {"oihw": (0, 1, 2, 3), "hwio": (3, 2, 0, 1)}  # where [out, in, height, width] lie
UNFOLDINGS: dict[str, tuple[Mode, ...]] = {
    "mean": ("in", "out"),
    "rms": ("in", "out"),
    "in": ("in",),
    "out": ("out",),
}


@dataclass(frozen=True)
class RankWeighting(Weighting):
    """Base of the rank weightings.

    Parameters
    ----------
    variant : ``improved``, Algorithm 4, or ``initial``, Algorithm 3 without a floor
    granularity : ``layer``, or ``model`` for one alpha per node from the root mean square of its ranks:
        Q_ER of eq. 2.10 without its logarithm, which can be negative
    unfolding : ``mean`` over both unfoldings of a weight; ``rms``, their root mean square (eq. 2.10 with d the
        unfoldings of a layer, without its logarithm); or only ``in`` or ``out``. Equal ranks of both give
        the same weights in each; ``granularity="model"`` is a root mean square over all of them anyway
    floor : the least rank that counts, above 0
    layout : how a convolution's weight lies: ``oihw``, PyTorch's [out, in, height, width], or ``hwio``, as
        in JAX and Keras. None is ``oihw``, and refuses weights that look like the other
    """

    variant: str = "improved"
    granularity: str = "layer"
    unfolding: str = "mean"
    floor: float = 1e-3
    layout: str | None = None

    def __post_init__(self) -> None:
        """Refuse choices that do not exist."""
        choices = {
            "variant": ("improved", "initial"),
            "granularity": ("layer", "model"),
            "unfolding": tuple(UNFOLDINGS),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            require(value in allowed, f"weighting.{name}", value, f"one of {', '.join(allowed)}")
        known = self.layout is None or self.layout in LAYOUTS
        require(known, "weighting.layout", self.layout, f"one of {', '.join(LAYOUTS)}, or None")
        require(0 < self.floor < float("inf"), "weighting.floor", self.floor, "above 0")

    def check(self, layout: Layout) -> None:
        convolutions = _convolutions(layout)
        if self.layout is None and (layer := _kernels_first(convolutions)):
            raise ValueError(
                f"weighting={type(self).__name__}: {layer.name!r} of shape {layer.shape} looks like a "
                "weight of JAX or Keras, [height, width, in, out]: set layout='hwio', or 'oihw' if not"
            )
        if not convolutions:
            raise ValueError(
                f"weighting={type(self).__name__} needs a model with a convolutional layer, and this one "
                "has none: choose another weighting or model"
            )

    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return [K, L], a column per layer of the layout; [K] for ``granularity="model"``."""
        ranks = self._ranks(updates)
        if self.granularity == "model":
            quality = ranks.square().mean(1).mean(1).sqrt().clamp_min(self.floor)
            return quality / quality.sum(), state
        # A round in which no node has learnt anything in a layer weighs that layer equally.
        least = self.floor if self.variant == "improved" else torch.finfo(torch.float64).tiny
        over_unfoldings = ranks.square().mean(2).sqrt() if self.unfolding == "rms" else ranks.mean(2)
        by_layer = over_unfoldings.clamp_min(least)
        return self._spread_over_layers(by_layer / by_layer.sum(0), updates.layout), state

    def metrics(self, updates: Updates, weights: Tensor, state: State) -> dict[str, float]:
        """Return ``weight-<partition id>-<layer>`` by convolution, or ``weight-<partition id>``."""
        if weights.ndim == 1:
            return {f"weight-{k}": float(a) for k, a in zip(updates.partition_ids, weights, strict=True)}
        return {
            f"weight-{k}-{layer.name.removesuffix('.weight')}": float(weights[row, column])
            for column, layer in enumerate(updates.layout.layers)
            if _is_convolution(layer)
            for row, k in enumerate(updates.partition_ids)
        }

    def _ranks(self, updates: Updates) -> Tensor:
        """Return the ranks [K, convolutions, unfoldings] of the nodes' own weights."""
        convolutions = _convolutions(updates.layout)
        modes, order = UNFOLDINGS[self.unfolding], LAYOUTS[self.layout or "oihw"]
        ranks = []
        for delta in updates.deltas:
            flat = updates.start - delta
            weights = [flat[layer.columns].view(layer.shape).permute(order) for layer in convolutions]
            ranks.append([mean_over_unfoldings(self.rank, weights, [mode]) for mode in modes])
        return torch.tensor(ranks, dtype=torch.float64).transpose(1, 2)

    def _spread_over_layers(self, alpha: Tensor, layout: Layout) -> Tensor:
        """Give every layer a column: its own, that of the last convolution before it, or 1/K."""
        uniform = torch.full_like(alpha[:, 0], 1 / len(alpha))
        columns: list[Tensor] = []
        latest, column = uniform, 0
        for layer in layout.layers:
            if _is_convolution(layer):
                latest, column = alpha[:, column], column + 1
                columns.append(latest)
            else:
                columns.append(latest if self.variant == "improved" else uniform)
        return torch.stack(columns, 1)

    @staticmethod
    @abstractmethod
    def rank(matrix: Tensor) -> float:
        """Return the rank of one unfolded weight."""


@dataclass(frozen=True)
class EffectiveRank(RankWeighting):
    """FedER: the entropy of the singular values that stand out from the noise."""

    @staticmethod
    def rank(matrix: Tensor) -> float:
        return effective_rank(matrix)


@dataclass(frozen=True)
class StableRank(RankWeighting):
    """Federated stable rank (thesis, appendix A): sum d^2 / max d^2 of the same singular values."""

    @staticmethod
    def rank(matrix: Tensor) -> float:
        return stable_rank(matrix)


def _is_convolution(layer: Layer) -> bool:
    return len(layer.shape) == 4 and not layer.is_buffer


def _convolutions(layout: Layout) -> list[Layer]:
    return [layer for layer in layout.layers if _is_convolution(layer)]


def _kernels_first(convolutions: Sequence[Layer]) -> Layer | None:
    """Return a weight whose first two dimensions look like a kernel's sides, and none's last two do."""
    first = [layer for layer in convolutions if _is_kernel(*layer.shape[:2])]
    last = [layer for layer in convolutions if _is_kernel(*layer.shape[2:])]
    return first[0] if first and not last else None


def _is_kernel(height: int, width: int) -> bool:
    return height == width <= LARGEST_KERNEL


# Erosion: the weights of Weight Erosion, for one requesting node.
#
# Grimberg, Hartley, Jaggi, Karimireddy: *Weight Erosion: An Update Aggregation Scheme for Personalized
# Collaborative Machine Learning*, 2020; adapted to neural networks by Gengler, Beaussart, Yuan (report,
# eqs. 1-4, Algorithm 1). With node 0 the requester and r = 1, 2, ... the round:
#
#     d_i     = ||Delta_i - Delta_0|| / ||Delta_0||                                          (1)
#     alpha_i = max{0, alpha_i - (1 + p_s floor((r - 1) b / |S_i|)) p_d d_i},  from 1        (2)
#     D       = sum alpha_i Delta_i / sum alpha_i                                            (3), (4)
#
# The norms are over all parameters, concatenated; ``by_layer`` gives every layer weights of its own, from the
# norms of its own parameters, as the report proposes in its last section. The requester's own alpha stays 1. The
# report sums the minibatch gradients, which is Delta_i divided by the client learning rate: the same d_i, and
# with ``step_size=Constant(1)`` the same step. There are three readings of b / |S_i|. The report prints the
# number of examples for |S_i| and 32 samples for b. The authors' code counts |S_i| in batches, which erodes far
# more (``batch_size``). And since a round is an epoch, b may be |S_i| itself (``samples_per_round=None``).


EVERY_NODE = "each"  # every node in turn is the requester


@dataclass(frozen=True)
class Erosion(Weighting):
    """alpha_i / sum alpha over the nodes that replied; an alpha never rises.

    Parameters
    ----------
    requester : partition id of the requesting node; ``each``: every node in turn, for
        :class:`~strategies.WeightErosionForAll` alone
    distance_penalty : p_d >= 0; 0 keeps all weights equal: FedAvg with :class:`~strategies.Uniform`
    size_penalty : p_s >= 0
    samples_per_round : b, samples drawn in a round; None is an epoch, b = |S_i|: the size term is r - 1 then,
        whatever the sizes
    batch_size : measure |S_i| in batches of this size, as the authors' code does; None in samples, as printed
    by_layer : whether each layer erodes by its own distance; a buffer goes with the parameters before it.
        A model of one layer erodes equally either way
    """

    requester: int | Literal["each"] | None = None
    distance_penalty: float = 0.01
    size_penalty: float = 2.0
    samples_per_round: int | None = 32
    batch_size: int | None = None
    by_layer: bool = False

    def __post_init__(self) -> None:
        """Refuse values out of range, and a missing requester."""
        if self.requester is None:
            raise ValueError(
                "weighting=erosion needs a requester: set weighting.requester to the partition id of the "
                "node that the model is for"
            )
        valid = self.requester == EVERY_NODE or (isinstance(self.requester, int) and self.requester >= 0)
        require(valid, "weighting.requester", self.requester, f"a partition id, or {EVERY_NODE}")
        for name in ("distance_penalty", "size_penalty"):
            value = getattr(self, name)
            require(0 <= value < float("inf"), f"weighting.{name}", value, "0 or above")
        for name in ("samples_per_round", "batch_size"):
            count = getattr(self, name)
            require(count is None or count >= 1, f"weighting.{name}", count, "1 or more, or null")

    def check(self, layout: Layout) -> None:
        one = self.requester != EVERY_NODE
        expected = "a partition id, unless strategy=weight_erosion_all trains a model for each node"
        require(one, "weighting.requester", self.requester, expected)

    def require_nodes(self, num_nodes: int) -> None:
        valid = not isinstance(self.requester, int) or self.requester < num_nodes
        require(valid, "weighting.requester", self.requester, f"below num_nodes={num_nodes}")

    def require_members(self, partition_ids: Sequence[int]) -> None:
        here = self.requester in partition_ids
        require(here, "weighting.requester", self.requester, "a node of the group, or another weighting")

    def find_lack(self, updates: Updates) -> str | None:
        if self.requester not in updates.partition_ids:
            return f"the requester, partition {self.requester}, sent no sound reply"
        return None

    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return the weights [K] or [K, L] of the nodes that replied; ``state`` holds everyone's alpha."""
        ids, distances = torch.tensor(updates.partition_ids), self._distances(updates)
        alpha = get_alphas(state, int(ids.max()) + 1, distances.shape[1:])
        rounds = int(state["rounds"]) if state else 0  # r - 1
        wear = 1 + self.size_penalty * self._epochs(rounds, updates.num_examples)
        loss = wear.view(-1, *(1,) * (distances.ndim - 1)) * self.distance_penalty * distances
        alpha[ids] = (alpha[ids] - loss).clamp_min(0)
        new_state = {"alpha": alpha, "rounds": torch.tensor(rounds + 1)}
        return alpha[ids] / alpha[ids].sum(0), new_state

    def _epochs(self, rounds: int, sizes: Tensor) -> Tensor:
        """Return floor((r - 1) b / |S_i|), [K]: how often each node's examples have been drawn."""
        if self.samples_per_round is None:
            return torch.full_like(sizes, rounds)
        if self.batch_size is not None:
            sizes = torch.ceil(sizes / self.batch_size)
        return torch.floor(rounds * self.samples_per_round / sizes)

    def metrics(self, updates: Updates, weights: Tensor, state: State) -> dict[str, float]:
        """Return everyone's alpha as ``weight-<partition id>``; by layer, the mean over the layers."""
        return {f"weight-{k}": float(alpha.mean()) for k, alpha in enumerate(state["alpha"])}

    def _distances(self, updates: Updates) -> Tensor:
        """Return d_i of eq. 1, [K], or [K, L] by layer, in float64."""
        assert isinstance(self.requester, int)
        own = updates.partition_ids.index(self.requester)
        if not self.by_layer:
            return _relative_distances(updates.deltas, own)
        distances = [torch.zeros(len(updates.deltas), dtype=torch.float64)]
        for layer in updates.layout.layers:
            distances.append(
                distances[-1]
                if layer.is_buffer
                else _relative_distances(updates.deltas[:, layer.columns], own)
            )
        return torch.stack(distances[1:], 1)


def _relative_distances(rows: Tensor, own: int) -> Tensor:
    """Return the rows' distances to one of them over its norm, [K]; 0 for all while it does not move."""
    norm = squared_norms(rows[own]).sqrt()
    if norm == 0:
        return torch.zeros(len(rows), dtype=torch.float64)
    return squared_distances(rows, rows[own]).sqrt() / norm


def get_alphas(state: State, count: int, layers: Sequence[int] = ()) -> Tensor:
    """Return a copy of everyone's alpha by partition id, at least ``count`` long, 1 at the start.

    ``layers`` is the shape of a node's alpha: (), or (L,) by layer.
    """
    known = state.get("alpha", torch.ones(0, *layers, dtype=torch.float64))
    return torch.cat([known, known.new_ones(max(0, count - len(known)), *known.shape[1:])])


def find_fault(weights: Tensor, updates: Updates) -> str | None:
    """Say what is wrong with weights; None where they can be used."""
    nodes, layers = len(updates.partition_ids), len(updates.layout.layers)
    if not isinstance(weights, Tensor):
        return f"{describe_value(weights)}, expected a tensor"
    if tuple(weights.shape) not in ((nodes,), (nodes, layers)):
        return f"weights of shape {tuple(weights.shape)}, expected {(nodes,)} or {(nodes, layers)}"
    sound = weights.isfinite().view(nodes, -1).all(1)
    if not bool(sound.all()):
        row = int((~sound).nonzero()[0])
        return f"partition {updates.partition_ids[row]} a weight that is NaN or infinite"
    if (least := float(weights.sum(0).min())) <= 0:
        return f"weights that sum to {least:.3g}, expected 1"
    return None


# Agnostic: the weights of agnostic federated learning (Mohri et al. 2019); strategies/afl.py has the rule.


@dataclass(frozen=True)
class Agnostic(Weighting):
    """alpha_k = lambda_k over its sum; lambda then climbs the nodes' losses (Mohri et al., ICML 2019).

    F_k is node k's loss at the model that it was sent, which it sends when asked
    (:class:`clients.StartLoss`). lambda begins as 1 / N for the N nodes that have replied; one that replies
    for the first time later comes in with 1 / N, and the others make room.

    Parameters
    ----------
    rate : how fast lambda climbs, 0 or above; 0 is :class:`Uniform`
    """

    rate: float = 0.1
    required_metric: ClassVar[str | None] = protocol.START_LOSS

    def __post_init__(self) -> None:
        """Refuse a negative rate."""
        require(0 <= self.rate < float("inf"), "weighting.rate", self.rate, "0 or above")

    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return the weights of the nodes that replied; ``state`` holds everyone's lambda, and whose it is."""
        known = state["partition_ids"].tolist() if state else []
        ids = [*known, *(k for k in updates.partition_ids if k not in known)]
        mixture = torch.full((len(ids),), 1 / len(ids), dtype=torch.float64)
        if known:
            mixture[: len(known)] = state["lambda"] * (len(known) / len(ids))
        rows = torch.tensor([ids.index(k) for k in updates.partition_ids])
        weights = mixture[rows] / mixture[rows].sum()
        climbed = mixture.index_add(0, rows, updates.metrics[protocol.START_LOSS], alpha=self.rate)
        return weights, {"partition_ids": torch.tensor(ids), "lambda": _project(climbed)}

    def metrics(self, updates: Updates, weights: Tensor, state: State) -> dict[str, float]:
        """Return everyone's next lambda as ``weight-<partition id>``."""
        pairs = zip(state["partition_ids"].tolist(), state["lambda"].tolist(), strict=True)
        return {f"weight-{k}": value for k, value in pairs}


def _project(vector: Tensor) -> Tensor:
    """Return the nearest vector that sums to one and has no negative entry (Duchi et al., ICML 2008)."""
    if vector.min() >= 0 and vector.sum() == 1:  # exactly
        return vector
    falling, _ = vector.sort(descending=True)
    shifts = (falling.cumsum(0) - 1) / torch.arange(1, len(vector) + 1)
    last = int((falling > shifts).nonzero()[-1])
    return (vector - shifts[last]).clamp_min(0)
