"""Oort: train the nodes with the largest utility, and explore unknown ones.

Lai, Zhu, Madhyastha, Chowdhury: *Oort: Efficient Federated Learning via Guided Participant Selection*, OSDI 2021
(arXiv 2010.06081), section 4 and Algorithm 1. A node that took part last in round L_k, with n_k examples, has

    U_k    = n_k sqrt( mean of its examples' squared losses )              statistical utility, then
    U_k    <- min(U_k, Q) / max_j min(U_j, Q)                              Q: the ``clip`` quantile of all U
    util_k = U_k + sqrt( staleness ln(t) / L_k )                           the longer ago, the more

Of round t's K = ``nodes_per_round`` nodes a share e[t] = max(``least_exploration``, ``exploration`` ``decay``^(t-1))
is drawn from those that never took part. The m others are exploited: of all nodes whose utility is at least
``cut_off`` times the m-th largest, m are drawn with probabilities proportional to it.

Deviations: the paper also scales down the utility of slow nodes, adapts how slow they may be (the pacer), and
tries fast nodes first. Here time is no part of a round, and unknown nodes are drawn uniformly. Losses are those
at w[t], in a pass of their own, where the paper takes them as training goes on. The paper adds the staleness to
U itself, which is far larger. Its authors' code first scales U to [0, 1] by the least and the largest; here U is
divided by the largest, which keeps the ratios. No node is retired after many rounds (off in that code). That
code also lets e decay once before the first round, takes the cut-off from the (m + 1)-th utility where the
paper has the m-th, and prefers unknown nodes with many examples. Where there are too few unknown nodes the
known fill their places, and the other way round. Nodes must be ours, or send ``squared-loss``. Reduction:
``nodes_per_round`` of all nodes is FedAvg, bit for bit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from flwr.app import ConfigScalar
from torch import Tensor

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.privacy import NoPrivacy, raise_no_guarantee
from .parts.updates import Updates
from .shared import protocol
from .shared.checks import require
from .shared.seeding import Purpose, generator

MIN_UTILITY = 1e-12  # a node with a utility of 0 may be drawn where there are no others


@dataclass(kw_only=True, eq=False)
class Oort(PseudoGradientStrategy):
    """FedAvg of the nodes with the largest statistical utility, and of some unknown ones.

    Parameters
    ----------
    exploration : the share of a round's nodes that are unknown ones, in round 1
    exploration_decay : by which factor it falls from round to round
    least_exploration : where it ends
    staleness : how much a node gains with the rounds in which it did not train; 0 for nothing
    clip : the quantile that cuts large utilities; 1 cuts none
    cut_off : c, how much less utility than the last of the best a node may have; 1 takes the best alone
    """

    sums: ClassVar[tuple[str, ...] | None] = ()
    required_metrics: ClassVar[tuple[str, ...]] = (protocol.SQUARED_LOSS,)
    exploration: float = 0.9
    exploration_decay: float = 0.98
    least_exploration: float = 0.2
    staleness: float = 0.1
    clip: float = 0.95
    cut_off: float = 0.95

    _utilities: dict[int, float] = field(default_factory=dict, init=False, repr=False)  # U_k by partition
    _last_rounds: dict[int, int] = field(default_factory=dict, init=False, repr=False)  # L_k

    def __post_init__(self) -> None:
        """Refuse shares out of range, and a privacy that a choice by losses would undo."""
        super().__post_init__()
        for name in ("exploration", "exploration_decay", "least_exploration", "clip", "cut_off"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"strategy.{name}", value, "in [0, 1]")
        require(self.staleness >= 0, "strategy.staleness", self.staleness, "0 or above")
        if type(self.privacy) is not NoPrivacy:
            raise_no_guarantee(
                "strategy=oort chooses who trains by losses without noise", "choose another strategy"
            )

    def for_group(self, name: str, members: tuple[int, ...]) -> Self:
        raise ValueError(
            "strategy.inner=Oort chooses among all nodes, and groups would choose each for itself: "
            "choose another inner strategy"
        )

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), protocol.SQUARED_LOSS: True}

    def choose(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the nodes to exploit, and those to explore."""
        count = self.count_in_round(len(partition_ids))
        if count >= len(partition_ids):
            return sorted(partition_ids)
        known = sorted(k for k in partition_ids if k in self._utilities)
        unknown = sorted(k for k in partition_ids if k not in self._utilities)
        share = max(self.least_exploration, self.exploration * self.exploration_decay ** (server_round - 1))
        exploited = min(math.floor((1 - share) * count + 1e-9), len(known))
        explored = min(count - exploited, len(unknown))
        exploited = count - explored
        rng = generator(self.seed, Purpose.GUIDED_SELECTION, server_round=server_round)
        chosen = [int(k) for k in rng.choice(unknown, explored, replace=False)] if explored else []
        return sorted(chosen + self._exploit(known, exploited, server_round, rng))

    def _exploit(
        self, known: Sequence[int], count: int, server_round: int, rng: np.random.Generator
    ) -> list[int]:
        """Draw ``count`` of the known nodes whose utility is not below the cut-off."""
        if count == 0:
            return []
        utilities = self.compute_utilities(known, server_round)
        cut = self.cut_off * sorted(utilities.values(), reverse=True)[count - 1]
        admitted = [k for k in known if utilities[k] >= cut]
        shares = np.array([utilities[k] for k in admitted]) + MIN_UTILITY
        return [int(k) for k in rng.choice(admitted, count, replace=False, p=shares / shares.sum())]

    def compute_utilities(self, known: Sequence[int], server_round: int) -> Mapping[int, float]:
        """Return util_k of nodes that have taken part: clipped, divided by the largest, with their staleness."""
        values = sorted(self._utilities[k] for k in known)
        most = values[min(math.floor(self.clip * len(values)), len(values) - 1)]
        aged = self.staleness * math.log(server_round)
        return {
            k: min(self._utilities[k], most) / (most or 1.0) + math.sqrt(aged / self._last_rounds[k])
            for k in known
        }

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        metrics, weights = super().take_step(server_round, updates)
        utilities = (updates.num_examples * updates.metrics[protocol.SQUARED_LOSS].sqrt()).tolist()
        self._utilities |= dict(zip(updates.partition_ids, utilities, strict=True))
        self._last_rounds |= dict.fromkeys(updates.partition_ids, server_round)
        return metrics, weights

    def state_dict(self) -> dict[str, Any]:
        known = {"utilities": dict(self._utilities), "last_rounds": dict(self._last_rounds)}
        return super().state_dict() | known

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._utilities, self._last_rounds = dict(state["utilities"]), dict(state["last_rounds"])
