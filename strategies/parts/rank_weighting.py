"""Weights by the rank of what a node has learnt: FedER and its kin.

A. Fu's thesis on federated effective rank (FedER, University of Toronto, 2022), Algorithms 3 and 4. For
each convolutional layer l and node k, with er the effective rank of the node's weight after EVBMF
(:mod:`strategies.shared.rank`),

    er_l,k    = max(floor, effective rank of W_l,k)
    alpha_l,k = er_l,k / sum_k er_l,k                                                     (3.1)

The other layers (biases, normalisation, running statistics, the classifier) take the alpha of the last
convolutional layer before them, in ``state_dict`` order (Algorithm 4), or 1/K (Algorithm 3). Layers before
the first convolution take 1/K.

Readings where the thesis is silent: the rank of a layer is the mean over its two unfoldings (``unfolding``
chooses one); the floor holds in both places where Algorithm 4 computes er (it is printed in one), since
otherwise the weights would not sum to one. Reduction: nodes of equal rank, identical ones for instance,
have weight 1/K, as :class:`~strategies.Uniform`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from strategies.shared.checks import require
from strategies.shared.rank import Mode, effective_rank, mean_over_unfoldings, stable_rank

from .layout import Layer, Layout
from .updates import Updates
from .weighting import State, Weighting

LARGEST_KERNEL = 11
LAYOUTS = {"oihw": (0, 1, 2, 3), "hwio": (3, 2, 0, 1)}  # where [out, in, height, width] lie
UNFOLDINGS: dict[str, tuple[Mode, ...]] = {"mean": ("in", "out"), "in": ("in",), "out": ("out",)}


@dataclass(frozen=True)
class RankWeighting(Weighting):
    """What rank weightings have in common.

    Parameters
    ----------
    variant : ``improved``, Algorithm 4, or ``initial``, Algorithm 3 without a floor
    granularity : ``layer``, or ``model`` for one alpha per node from the root mean square of its ranks:
        Q_ER of eq. 2.10 without its logarithm, which can be negative
    unfolding : ``mean`` over both unfoldings of a weight, or only ``in`` or ``out``
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
        if self.layout is None and (found := _kernels_first(convolutions)):
            raise ValueError(
                f"weighting={type(self).__name__}: {found.name!r} of shape {found.shape} looks like a "
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
        by_layer = ranks.mean(2).clamp_min(least)
        return self._spread(by_layer / by_layer.sum(0), updates.layout), state

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

    def _spread(self, alpha: Tensor, layout: Layout) -> Tensor:
        """Give every layer a column: its own, that of the last convolution before it, or 1/K."""
        uniform = torch.full_like(alpha[:, 0], 1 / len(alpha))
        columns: list[Tensor] = []
        latest, seen = uniform, 0
        for layer in layout.layers:
            if _is_convolution(layer):
                latest, seen = alpha[:, seen], seen + 1
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
    return len(layer.shape) == 4 and not layer.buffer


def _convolutions(layout: Layout) -> list[Layer]:
    return [layer for layer in layout.layers if _is_convolution(layer)]


def _kernels_first(convolutions: Sequence[Layer]) -> Layer | None:
    """Return a weight whose first two dimensions look like a kernel's sides, and none's last two do."""
    first = [layer for layer in convolutions if _is_kernel(*layer.shape[:2])]
    last = [layer for layer in convolutions if _is_kernel(*layer.shape[2:])]
    return first[0] if first and not last else None


def _is_kernel(height: int, width: int) -> bool:
    return height == width <= LARGEST_KERNEL
