"""Privacy: clip updates and add noise, so that the model shows little of a single node.

Each pseudo-gradient is clipped to norm C, and Gaussian noise hides whether a node took part at all
(McMahan, Ramage, Talwar, Zhang: *Learning Differentially Private Recurrent Language Models*, ICLR 2018,
Algorithm 1, with uniform weights and the K replies as the denominator):

    Delta_k <- Delta_k min{1, C / ||Delta_k||},      D = (1/K) ( sum_k Delta_k + N(0, z^2 C^2 I) )

The norm is over all parameters. *Central*: the server does both, and has to be trusted with the updates.
*Local*: each node clips its own and adds noise before it sends it, and sends nothing else
(:mod:`clients.privacy`). Mask, server optimizer and step size see only what has noise.

The guarantee is for a whole node, not for an example of it. Two runs are neighbours where one node's Delta_k
are zeros (central; :class:`AdaptivePrivacy` differs), or come from any other data (local: twice the distance).
It is assumed known who trains, since that follows from the seed: no amplification by sampling. A node pays
for the rounds in which it trained; the epsilon of a run is the largest of all nodes' (:func:`epsilon`).
"""

import logging
import math
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Protocol

import torch
from flwr.app import ConfigScalar
from torch import Tensor

from strategies.shared import protocol
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, torch_seed

from .aggregation import Aggregation, Mean
from .layout import Layout, squared_norms
from .mask import Mask
from .step_size import Constant, StepSize
from .updates import Part, Updates
from .weighting import Uniform, Weighting

logger = logging.getLogger("flwr.strategies")

MAX_EPSILON = 1e6  # an epsilon beyond it promises nothing
MISSING_PACKAGE = "privacy needs the package dp-accounting: pip install -e '.[privacy]'"
NOISE_MESSAGE = "round %d: privacy adds noise of an expected norm of %.3g to a mean update of norm %.3g%s"
MOSTLY_NOISE = ": the step is mostly noise; more nodes in a round, or fewer parameters, make it less"


@cache
def epsilon(noise: float, rounds: int, delta: float) -> float:
    """Return the epsilon of ``rounds`` Gaussian mechanisms at ``delta``, never too small; above 1e6 infinity.

    The arithmetic is Google's dp-accounting: the delta of a Gaussian mechanism at a given epsilon (Balle,
    Wang: *Improving the Gaussian Mechanism for Differential Privacy*, ICML 2018, Theorem 8). n Gaussian
    mechanisms with noise z are exactly one with noise z / sqrt(n): nothing is lost in composing them.

    Parameters
    ----------
    noise : the noise's standard deviation over the most that a node can change, above 0
    rounds : how many times it was applied to the same node's data
    delta : in (0, 1)

    Raises
    ------
    ValueError : where dp-accounting is not installed
    """
    try:
        with redirect_stderr(sys.__stderr__):  # absl, which it imports, keeps the stream and may close it
            from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss  # it takes a second
            from scipy.optimize import bisect
    except ImportError as error:
        raise ValueError(MISSING_PACKAGE) from error
    if rounds == 0:
        return 0.0
    law = GaussianPrivacyLoss(noise / math.sqrt(rounds))

    def excess(at: float) -> float:
        return float(law.get_delta_for_epsilon(at)) - delta

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
        if high > MAX_EPSILON:
            return math.inf
    return float(bisect(excess, 0.0, high, xtol=1e-10)) + 1e-9


State = Mapping[str, float]


class Privacy(Part, ABC):
    """Change a round's updates before they are averaged, and their mean."""

    is_local: ClassVar[bool] = False  # whether the nodes clip and add noise
    required_reply_keys: ClassVar[
        dict[str, str]
    ] = {}  # what shows that they do, and the fault of a reply without it
    unseeded_noise: bool = False  # whether a round that is taken again has other noise
    stop_at_epsilon: float | None = None

    def train_config(self) -> dict[str, ConfigScalar]:
        """Return what the messages tell the nodes of it."""
        return {}

    def require(
        self, weighting: Weighting, aggregation: Aggregation, mask: Mask, step_size: StepSize
    ) -> None:
        """Raise ``ValueError`` for parts that would show what the noise hides."""
        return None

    def check(self, layout: Layout, extra: str | None) -> None:
        """Raise ``ValueError`` for a model, or something ``extra`` in a reply, that gets no noise."""
        return None

    @abstractmethod
    def clip_(self, updates: Updates, state: State, server_round: int) -> State:
        """Bound each pseudo-gradient, in place; return the part's next state."""

    @abstractmethod
    def noise_(self, mean: Tensor, nodes: int, state: State, server_round: int) -> None:
        """Add noise to the mean pseudo-gradient [P] of ``nodes`` nodes, in place; ``state`` is clip_'s."""

    def deviation(self, nodes: int, state: State) -> float:
        """Return the standard deviation of what :meth:`noise_` adds to each coordinate; 0 for nothing."""
        return 0.0

    def epsilon(self, rounds: int) -> float | None:
        """Return what ``rounds`` rounds cost a node; None where nothing is promised."""
        return None


class NoServerPrivacy(Privacy):
    """The server changes neither updates nor their mean."""

    def clip_(self, updates: Updates, state: State, server_round: int) -> State:
        """Change nothing."""
        return state

    def noise_(self, mean: Tensor, nodes: int, state: State, server_round: int) -> None:
        """Change nothing."""


@dataclass(frozen=True)
class NoPrivacy(NoServerPrivacy):
    """Updates and their mean stay as they are."""

    sums: ClassVar[tuple[str, ...] | None] = ()


@dataclass(frozen=True)
class Gaussian(Privacy):
    """Base of central and local privacy: Gaussian noise.

    Parameters
    ----------
    clip : C, the largest l2 norm of a pseudo-gradient
    noise_multiplier : z, the noise's standard deviation in units of C; 0 protects nothing, and then a clip
        of infinity is :class:`NoPrivacy`, bit for bit
    delta : the probability with which epsilon may fail; well below one over the number of nodes
    stop_at_epsilon : the run ends before the round that would cost more; None for all rounds
    noise_seed : decides the noise; anyone who knows it can remove the noise. None: the operating system
        draws it, and nobody can repeat the run
    """

    clip: float = 1.0
    noise_multiplier: float = 1.0
    delta: float = 1e-5
    stop_at_epsilon: float | None = None
    noise_seed: int | None = None

    kind: ClassVar[str]
    sensitivity: ClassVar[float] = 1.0  # how far a node can move what is noised, in units of C

    def __post_init__(self) -> None:
        """Refuse values out of range, noise for what has no bound, and a limit that round 1 passes."""
        clip, noise, limit = self.clip, self.noise_multiplier, self.stop_at_epsilon
        require(clip > 0, "privacy.clip", clip, "a number above 0")
        require(0 <= noise < float("inf"), "privacy.noise_multiplier", noise, "0 or above")
        bounded = clip < float("inf") or noise == 0
        require(bounded, "privacy.clip", clip, "a finite number where privacy.noise_multiplier is above 0")
        require(0 < self.delta < 1, "privacy.delta", self.delta, "in (0, 1)")
        seed = self.noise_seed
        require(seed is None or seed >= 0, "privacy.noise_seed", seed, "0 or above, or null")
        first = self.epsilon(1)
        if limit is not None and first is None:
            require(
                False,
                "privacy.stop_at_epsilon",
                limit,
                "null where the noise is too small to give any epsilon",
            )
        elif limit is not None and first is not None:
            require(limit >= first, "privacy.stop_at_epsilon", limit, f"at least {first:.4g}, a round's")

    @property
    def unseeded_noise(self) -> bool:  # type: ignore[override]
        """Whether the operating system decides."""
        return self.noise_seed is None and self.noise_multiplier > 0

    def train_config(self) -> dict[str, ConfigScalar]:
        """Return the kind, the clip and the noise, which a node may demand."""
        return {
            protocol.PRIVACY: self.kind,
            protocol.PRIVACY_CLIP: float(self.clip),
            protocol.PRIVACY_NOISE: float(self.noise_multiplier),
        }

    def require(
        self, weighting: Weighting, aggregation: Aggregation, mask: Mask, step_size: StepSize
    ) -> None:
        """Refuse weights, which may follow the nodes' data, and what else nodes would have to tell."""
        if type(weighting) is not Uniform:
            reason = f"weighting={type(weighting).__name__} may follow the nodes' data, and gets no noise"
            raise_no_guarantee(reason, "set weighting=uniform")
        if aggregation.required_metric:
            raise_no_guarantee(
                f"nodes also send {aggregation.required_metric!r}, which gets no noise",
                "set aggregation=mean",
            )

    def check(self, layout: Layout, extra: str | None) -> None:
        """Refuse running statistics, and control variates."""
        if extra:
            raise_no_guarantee(
                f"nodes also send {extra!r}, which gets no noise", "choose a strategy without it"
            )
        if layout.num_buffers:
            name = next(layer.name for layer in layout.layers if layer.is_buffer)
            raise_no_guarantee(
                f"the model's buffer {name!r} gets no noise", "choose a model without batch norm"
            )

    def epsilon(self, rounds: int) -> float | None:
        """Return what ``rounds`` rounds cost a node, at ``delta``."""
        if self.noise_multiplier == 0:
            return None
        cost = epsilon(self.noise_multiplier / self.sensitivity, rounds, self.delta)
        return cost if cost < float("inf") else None


@dataclass(frozen=True)
class LocalPrivacy(NoServerPrivacy, Gaussian):
    """Each node clips its own update, adds N(0, z^2 C^2 I), and sends nothing else.

    The server sees no loss, number of examples or evaluation. Whatever it does with the updates costs no more.
    """

    sums: ClassVar[tuple[str, ...] | None] = ()
    is_local: ClassVar[bool] = True
    kind: ClassVar[str] = protocol.LOCAL
    required_reply_keys: ClassVar[dict[str, str]] = {
        protocol.PRIVACY: "does not say that it noised its update"
    }
    sensitivity: ClassVar[float] = 2.0

    def train_config(self) -> dict[str, ConfigScalar]:
        """Return also the seed, if there is one."""
        seed = {} if self.noise_seed is None else {protocol.PRIVACY_SEED: self.noise_seed}
        return super().train_config() | seed


def raise_no_guarantee(reason: str, remedy: str) -> None:
    """Raise ``ValueError`` with the reason why a guarantee would not hold."""
    raise ValueError(f"privacy would not hold: {reason}; {remedy}, or set privacy=none")


def refuse_groups(privacy: Privacy) -> None:
    """Raise ``ValueError`` for privacy where groups of nodes have models of their own."""
    if type(privacy) is not NoPrivacy:
        raise_no_guarantee("each group's model shows who is in it", "choose a strategy with one model")


# Central privacy: the server clips and adds noise; the clip is fixed, or follows the updates' norms.


CLIP = "clip"  # of the state
MAX_EXPONENT, MIN_CLIP = 50.0, 1e-30  # no clip becomes 0 or infinite
COUNT_NOISE, UPDATE_NOISE = 0, 1  # what the noise of a round is for


@dataclass(frozen=True)
class CentralPrivacy(Gaussian):
    """The server clips each update to norm C, and adds N(0, z^2 C^2 I) to their sum.

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
            raise_no_guarantee(
                f"aggregation={type(aggregation).__name__} is no sum", "set aggregation=mean"
            )
        if not mask.is_identity:
            raise_no_guarantee(f"mask={type(mask).__name__} {looks}", "set mask=none")
        if type(step_size) is not Constant:
            raise_no_guarantee(f"step_size={type(step_size).__name__} {looks}", "set step_size=constant")

    def clip_(self, updates: Updates, state: State, server_round: int) -> State:
        """Scale each pseudo-gradient down to the norm C, where it is longer."""
        self._clip_in_place(updates, self.clip)
        return state

    def noise_(self, mean: Tensor, nodes: int, state: State, server_round: int) -> None:
        """Add N(0, deviation^2) to each coordinate."""
        if deviation := self.deviation(nodes, state):
            self._add_noise(mean, deviation, server_round)

    def deviation(self, nodes: int, state: State) -> float:
        """Return z C / K."""
        if not self.noise_multiplier:
            return 0.0  # 0 times an infinite clip is no number
        return self.noise_multiplier * self.clip / nodes

    def _clip_in_place(self, updates: Updates, clip: float) -> list[float]:
        """Clip the updates in place; return the norms that they had."""
        norms: list[float] = squared_norms(updates.deltas).sqrt().tolist()
        for delta, norm in zip(updates.deltas, norms, strict=True):
            if norm > clip:
                delta.mul_(clip / norm)
        return norms

    def _add_noise(self, mean: Tensor, deviation: float, server_round: int) -> None:
        noise = torch.randn(mean.shape, generator=self._draw(server_round, UPDATE_NOISE), dtype=mean.dtype)
        mean.add_(noise.to(mean.device), alpha=deviation)

    def _draw(self, server_round: int, what: int) -> torch.Generator:
        """Return a fresh generator: of the seed, or of the operating system."""
        if self.noise_seed is None:
            return torch.Generator().manual_seed(secrets.randbits(63))
        seed = torch_seed(
            self.noise_seed, Purpose.PRIVACY_NOISE, server_round=server_round, partition_id=what
        )
        return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class AdaptivePrivacy(CentralPrivacy):
    """C follows a quantile of the norms (Andrew, Thakkar, McMahan, Ramaswamy: *Differentially Private
    Learning with Adaptive Clipping*, NeurIPS 2021, Algorithm 1).

        b = (1/K) ( #{k: ||Delta_k|| <= C} + N(0, sigma_b^2) ),    C <- C exp(-clip_rate (b - quantile))

    As in the paper, an absent node adds zeros to the sum and 1/2 to the count, so it moves the count by at
    most 1/2. A round costs what one of :class:`CentralPrivacy` with the same z costs; as b takes its share,
    the updates' noise is larger, z_Delta = (z^-2 - (2 sigma_b)^-2)^-1/2. clip_rate = 0 still pays for b.

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
        """Clip to this round's C; return it, and the next round's."""
        clip = state.get(CLIP, self.clip)
        norms = self._clip_in_place(updates, clip)
        noise = torch.randn((), generator=self._draw(server_round, COUNT_NOISE), dtype=torch.float64)
        count = sum(norm <= clip for norm in norms) + float(noise) * self.count_noise
        change = -self.clip_rate * (count / len(norms) - self.quantile)
        after = clip * math.exp(min(change, MAX_EXPONENT))
        return {"used": clip, CLIP: min(max(after, MIN_CLIP), 1 / MIN_CLIP)}

    def deviation(self, nodes: int, state: State) -> float:
        """Return z_Delta C / K."""
        if not (z := self.noise_multiplier):
            return 0.0
        z = (z**-2 - (2 * self.count_noise) ** -2) ** -0.5
        return float(z * state["used"] / nodes)


class ContributionCounts(Protocol):
    """By partition, in how many rounds its update was sound (``updates``), and was ``left_out``."""

    counts: dict[int, dict[str, int]]


@dataclass
class PrivacyAccountant:
    """Applies a privacy part, round by round, and keeps its accounts.

    Parameters
    ----------
    privacy : the part
    contribution_log : in how many rounds each node took part
    state : the part's own
    num_repeated : rounds that have been taken twice, with other noise, since a run was resumed
    """

    privacy: Privacy
    contribution_log: ContributionCounts
    state: State = field(default_factory=dict)
    num_repeated: int = 0
    has_compared: bool = False  # whether the noise has been set beside the update, once a process

    @property
    def rounds(self) -> int:
        """For how many rounds the node that trained most has paid.

        Where nodes add the noise, also for those in which it was left out.
        """
        in_vain = self.privacy.is_local
        paid = [
            entry["updates"] + entry["left_out"] * in_vain
            for entry in self.contribution_log.counts.values()
        ]
        return max(paid, default=0) + self.num_repeated

    @property
    def stop_reason(self) -> str:
        """Say why no further round may be taken; empty where it may."""
        limit = self.privacy.stop_at_epsilon
        cost = None if limit is None else self.privacy.epsilon(self.rounds + 1)
        if limit is None or cost is None or cost <= limit:
            return ""
        return f"privacy.stop_at_epsilon={limit:g}: a further round would cost epsilon {cost:.4g}"

    def metrics(self) -> dict[str, float]:
        """Return epsilon, where something is promised, and the clip that was used, where it moves."""
        cost = self.privacy.epsilon(self.rounds)
        metrics = {} if cost is None else {protocol.EPSILON: cost}
        return metrics | ({protocol.CLIP: self.state["used"]} if "used" in self.state else {})

    def clip_(self, updates: Updates, server_round: int) -> None:
        """Bound the round's updates, in place."""
        self.state = self.privacy.clip_(updates, self.state, server_round)

    def noise_(self, mean: Tensor, nodes: int, server_round: int) -> None:
        """Add the round's noise to the mean of ``nodes`` updates, in place."""
        deviation = 0.0 if self.has_compared else self.privacy.deviation(nodes, self.state)
        if deviation:
            self.has_compared = True
            signal, noise = float(squared_norms(mean).sqrt()), deviation * len(mean) ** 0.5
            level, remark = (logging.WARNING, MOSTLY_NOISE) if noise > signal else (logging.INFO, "")
            logger.log(level, NOISE_MESSAGE, server_round, noise, signal, remark)
        self.privacy.noise_(mean, nodes, self.state, server_round)

    def state_dict(self) -> dict[str, Any]:
        """Return what a run resumes from."""
        return {"state": dict(self.state), "again": self.num_repeated}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Continue; a round that was under way is paid for once more where its noise will be another.

        None changes nothing: a strategy that goes back to a good model takes back nothing that was spent.
        """
        if state is None:
            return
        self.state, self.num_repeated = state["state"], state["again"] + self.privacy.unseeded_noise
