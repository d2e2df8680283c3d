"""Central privacy: the server cuts and noises; the clip is fixed, or follows the updates' norms."""

import math
import secrets
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from strategies.shared import protocol
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, torch_seed

from .aggregation import Aggregation, Mean
from .mask import Mask
from .norms import squared_norms
from .privacy import Gaussian, State, refuse
from .step_size import Constant, StepSize
from .updates import Updates
from .weighting import Weighting

CLIP = "clip"  # of the state
LONGEST, SHORTEST = 50.0, 1e-30  # no clip becomes 0 or infinite
SHARE, VALUES = 0, 1  # what the noise of a round is for


@dataclass(frozen=True)
class CentralPrivacy(Gaussian):
    """The server cuts each update to C, and adds N(0, z^2 C^2 I) to their sum.

    It sees the updates as they are, and what nodes say of themselves (loss, examples) gets no noise:
    publish the model, not metrics.csv. For the parameters see :class:`~strategies.parts.privacy.Gaussian`.
    """

    kind: ClassVar[str] = protocol.CENTRAL

    def require(
        self, weighting: Weighting, aggregation: Aggregation, mask: Mask, step_size: StepSize
    ) -> None:
        """Refuse what looks at the updates before they have their noise."""
        super().require(weighting, aggregation, mask, step_size)
        looks = "looks at the updates before they have their noise"
        if type(aggregation) is not Mean:
            refuse(f"aggregation={type(aggregation).__name__} is no sum", "set aggregation=mean")
        if not mask.idle:
            refuse(f"mask={type(mask).__name__} {looks}", "set mask=none")
        if type(step_size) is not Constant:
            refuse(f"step_size={type(step_size).__name__} {looks}", "set step_size=constant")

    def clip_(self, updates: Updates, state: State, server_round: int) -> State:
        """Scale each pseudo-gradient down to the norm C, where it is longer."""
        self._cut(updates, self.clip)
        return state

    def noise_(self, mean: Tensor, nodes: int, state: State, server_round: int) -> None:
        """Add N(0, deviation^2) to each coordinate."""
        if deviation := self.deviation(nodes, state):
            self._add(mean, deviation, server_round)

    def deviation(self, nodes: int, state: State) -> float:
        """Return z C / K."""
        if not self.noise_multiplier:
            return 0.0  # 0 times an infinite clip is no number
        return self.noise_multiplier * self.clip / nodes

    def _cut(self, updates: Updates, clip: float) -> list[float]:
        """Cut the updates in place; return the norms that they had."""
        norms: list[float] = squared_norms(updates.deltas).sqrt().tolist()
        for delta, norm in zip(updates.deltas, norms, strict=True):
            if norm > clip:
                delta.mul_(clip / norm)
        return norms

    def _add(self, mean: Tensor, deviation: float, server_round: int) -> None:
        noise = torch.randn(mean.shape, generator=self._draw(server_round, VALUES), dtype=mean.dtype)
        mean.add_(noise.to(mean.device), alpha=deviation)

    def _draw(self, server_round: int, what: int) -> torch.Generator:
        """Return a fresh generator: of the seed, or of the operating system."""
        if self.noise_seed is None:
            return torch.Generator().manual_seed(secrets.randbits(63))
        kept = torch_seed(
            self.noise_seed, Purpose.PRIVACY_NOISE, server_round=server_round, partition_id=what
        )
        return torch.Generator().manual_seed(kept)


@dataclass(frozen=True)
class AdaptivePrivacy(CentralPrivacy):
    """C follows a quantile of the norms (Andrew, Thakkar, McMahan, Ramaswamy: *Differentially Private
    Learning with Adaptive Clipping*, NeurIPS 2021, Algorithm 1).

        b = (1/K) ( #{k: ||Delta_k|| <= C} + N(0, sigma_b^2) ),    C <- C exp(-clip_rate (b - quantile))

    As in the paper, a node that is not there adds zeros to the sum and 1/2 to the count, which it so moves
    by no more than 1/2. A round costs what one of :class:`CentralPrivacy` with the same z costs; as b takes
    its share, the updates' noise is larger, z_Delta = (z^-2 - (2 sigma_b)^-2)^-1/2. clip_rate = 0 still
    pays for b.

    Parameters
    ----------
    quantile : gamma, the share of the updates that are to be shorter than C
    clip_rate : eta_C, 0.2 in the paper
    count_noise : sigma_b in nodes, above z / 2; the paper takes a twentieth of the nodes of a round

    ``clip`` is the first C; the others are as in :class:`CentralPrivacy`.
    """

    quantile: float = 0.5
    clip_rate: float = 0.2
    count_noise: float = 1.0

    def __post_init__(self) -> None:
        """Refuse values out of range, and noise for the share that leaves none for the updates."""
        super().__post_init__()
        require(self.clip < float("inf"), "privacy.clip", self.clip, "a finite number to start from")
        require(0 <= self.quantile <= 1, "privacy.quantile", self.quantile, "in [0, 1]")
        require(0 <= self.clip_rate < float("inf"), "privacy.clip_rate", self.clip_rate, "0 or above")
        least = self.noise_multiplier / 2
        enough = 0 <= self.count_noise < float("inf") and (least == 0 or self.count_noise > least)
        require(
            enough, "privacy.count_noise", self.count_noise, f"above {least:g}, half the noise_multiplier"
        )

    def clip_(self, updates: Updates, state: State, server_round: int) -> State:
        """Cut to this round's C; return it, and the next round's."""
        clip = state.get(CLIP, self.clip)
        norms = self._cut(updates, clip)
        noise = torch.randn((), generator=self._draw(server_round, SHARE), dtype=torch.float64)
        count = sum(norm <= clip for norm in norms) + float(noise) * self.count_noise
        change = -self.clip_rate * (count / len(norms) - self.quantile)
        after = clip * math.exp(min(change, LONGEST))
        return {"used": clip, CLIP: min(max(after, SHORTEST), 1 / SHORTEST)}

    def deviation(self, nodes: int, state: State) -> float:
        """Return z_Delta C / K."""
        if not (z := self.noise_multiplier):
            return 0.0
        z = (z**-2 - (2 * self.count_noise) ** -2) ** -0.5
        return float(z * state["used"] / nodes)
