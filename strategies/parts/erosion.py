"""Erosion: the weights of Weight Erosion, for one requesting node.

Grimberg, Hartley, Jaggi, Karimireddy: *Weight Erosion: An Update Aggregation Scheme for Personalized
Collaborative Machine Learning*, 2020; adapted to neural networks by Gengler, Beaussart, Yuan (report,
eqs. 1-4, Algorithm 1). With node 0 the requester and r = 1, 2, ... the round:

    d_i     = ||Delta_i - Delta_0|| / ||Delta_0||                                          (1)
    alpha_i = max{0, alpha_i - (1 + p_s floor((r - 1) b / |S_i|)) p_d d_i},  from 1        (2)
    D       = sum alpha_i Delta_i / sum alpha_i                                            (3), (4)

The norms are over all parameters, concatenated; ``by_layer`` gives every layer weights of its own, from the
norms of its own parameters, as the report proposes in its last section. The requester's own alpha stays 1.
The report sums the minibatch gradients, which is Delta_i divided by the client learning rate: the same d_i,
and with ``step_size=Constant(1)`` the same step. Two readings of |S_i|: the report prints the number of
examples, the authors' code counts batches, which erodes far more; see ``batch_size``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from strategies.shared.checks import require

from .layout import Layout
from .norms import squared_distances, squared_norms
from .updates import Updates
from .weighting import State, Weighting

EACH = "each"  # every node in turn is the requester


@dataclass(frozen=True)
class Erosion(Weighting):
    """alpha_i / sum alpha over the nodes that replied; an alpha never rises.

    Parameters
    ----------
    requester : partition id of the requesting node; ``each``: every node in turn, for
        :class:`~strategies.WeightErosionForAll` alone
    distance_penalty : p_d >= 0; 0 keeps all weights equal: FedAvg with :class:`~strategies.Uniform`
    size_penalty : p_s >= 0
    samples_per_round : b, samples drawn in a round
    batch_size : measure |S_i| in batches of so many, as the authors' code does; None in samples, as printed
    by_layer : whether each layer erodes by its own distance; a buffer goes with the parameters before it.
        A model of one layer erodes alike either way
    """

    requester: int | Literal["each"] | None = None
    distance_penalty: float = 0.01
    size_penalty: float = 2.0
    samples_per_round: int = 32
    batch_size: int | None = None
    by_layer: bool = False

    def __post_init__(self) -> None:
        """Refuse values out of range, and a missing requester."""
        if self.requester is None:
            raise ValueError(
                "weighting=erosion needs a requester: set weighting.requester to the partition id of the "
                "node that the model is for"
            )
        valid = self.requester == EACH or (isinstance(self.requester, int) and self.requester >= 0)
        require(valid, "weighting.requester", self.requester, f"a partition id, or {EACH}")
        for name in ("distance_penalty", "size_penalty"):
            value = getattr(self, name)
            require(0 <= value < float("inf"), f"weighting.{name}", value, "0 or above")
        require(self.samples_per_round >= 1, "weighting.samples_per_round", self.samples_per_round, ">= 1")
        valid = self.batch_size is None or self.batch_size >= 1
        require(valid, "weighting.batch_size", self.batch_size, "1 or more, or null")

    def check(self, layout: Layout) -> None:
        one = self.requester != EACH
        expected = "a partition id, unless strategy=weight_erosion_all trains a model for each node"
        require(one, "weighting.requester", self.requester, expected)

    def require_nodes(self, num_nodes: int) -> None:
        valid = not isinstance(self.requester, int) or self.requester < num_nodes
        require(valid, "weighting.requester", self.requester, f"below num_nodes={num_nodes}")

    def require_members(self, partition_ids: Sequence[int]) -> None:
        here = self.requester in partition_ids
        require(here, "weighting.requester", self.requester, "a node of the group, or another weighting")

    def lacks(self, updates: Updates) -> str | None:
        if self.requester not in updates.partition_ids:
            return f"the requester, partition {self.requester}, sent no sound reply"
        return None

    def __call__(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return the weights [K] or [K, L] of the nodes that replied; ``state`` holds everyone's alpha."""
        ids, distances = torch.tensor(updates.partition_ids), self._distances(updates)
        alpha = alphas(state, int(ids.max()) + 1, distances.shape[1:])
        rounds = int(state["rounds"]) if state else 0  # r - 1
        sizes = updates.num_examples
        if self.batch_size is not None:
            sizes = torch.ceil(sizes / self.batch_size)
        wear = 1 + self.size_penalty * torch.floor(rounds * self.samples_per_round / sizes)
        loss = wear.view(-1, *(1,) * (distances.ndim - 1)) * self.distance_penalty * distances
        alpha[ids] = (alpha[ids] - loss).clamp_min(0)
        new_state = {"alpha": alpha, "rounds": torch.tensor(rounds + 1)}
        return alpha[ids] / alpha[ids].sum(0), new_state

    def metrics(self, updates: Updates, weights: Tensor, state: State) -> dict[str, float]:
        """Return everyone's alpha as ``weight-<partition id>``; by layer, the mean over the layers."""
        return {f"weight-{k}": float(alpha.mean()) for k, alpha in enumerate(state["alpha"])}

    def _distances(self, updates: Updates) -> Tensor:
        """Return d_i of eq. 1, [K], or [K, L] by layer, in float64."""
        assert isinstance(self.requester, int)
        own = updates.partition_ids.index(self.requester)
        if not self.by_layer:
            return _relative(updates.deltas, own)
        found = [torch.zeros(len(updates.deltas), dtype=torch.float64)]
        for layer in updates.layout.layers:
            found.append(found[-1] if layer.buffer else _relative(updates.deltas[:, layer.columns], own))
        return torch.stack(found[1:], 1)


def _relative(rows: Tensor, own: int) -> Tensor:
    """Return the rows' distances to one of them over its norm, [K]; 0 for all while it does not move."""
    norm = squared_norms(rows[own]).sqrt()
    if norm == 0:
        return torch.zeros(len(rows), dtype=torch.float64)
    return squared_distances(rows, rows[own]).sqrt() / norm


def alphas(state: State, count: int, layers: Sequence[int] = ()) -> Tensor:
    """Return a copy of everyone's alpha by partition id, at least ``count`` long, 1 at the start.

    ``layers`` is the shape of a node's alpha: (), or (L,) by layer.
    """
    known = state.get("alpha", torch.ones(0, *layers, dtype=torch.float64))
    return torch.cat([known, known.new_ones(max(0, count - len(known)), *known.shape[1:])])
