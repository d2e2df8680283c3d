"""Privacy: how much of a single node's data can the model show?

Each pseudo-gradient is cut to the length C, and Gaussian noise hides whether a node was there at all
(McMahan, Ramage, Talwar, Zhang: *Learning Differentially Private Recurrent Language Models*, ICLR 2018,
Algorithm 1, with uniform weights and the K replies as the denominator):

    Delta_k <- Delta_k min{1, C / ||Delta_k||},      D = (1/K) ( sum_k Delta_k + N(0, z^2 C^2 I) )

The norm is over all parameters. *Central*: the server does both, and has to be trusted with the updates.
*Local*: each node cuts and noises its own before it sends it, and sends nothing else
(:mod:`clients.privacy`). Mask, server optimizer and step size see what has been noised, nothing else.

What is counted. A whole node is protected, not an example of it: two runs are neighbours where one node's
Delta_k are zeros (central; for ``adaptive`` see there), or are computed from any other data (local: twice
the distance). Who trains is taken as known, since it follows from the seed: no amplification by sampling.
A node pays for the rounds in which it trained; epsilon is the largest of all nodes' (:mod:`.accounting`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from flwr.app import ConfigScalar
from torch import Tensor

from strategies.shared import protocol
from strategies.shared.checks import require

from . import accounting
from .aggregation import Aggregation
from .layout import Layout
from .mask import Mask
from .step_size import StepSize
from .updates import Updates
from .weighting import Uniform, Weighting

State = Mapping[str, float]


class Privacy(ABC):
    """What happens to a round's updates before they are averaged, and to their mean."""

    at_nodes: ClassVar[bool] = False  # whether the nodes see to it
    evidence: ClassVar[dict[str, str]] = {}  # what shows that they do, and the fault of a reply without it
    fresh: bool = False  # whether a round that is taken again has other noise
    stop_at_epsilon: float | None = None

    def asks(self) -> dict[str, ConfigScalar]:
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
        """Add noise to the mean pseudo-gradient [P] of so many nodes, in place; ``state`` is clip_'s."""

    def deviation(self, nodes: int, state: State) -> float:
        """Return the standard deviation of what :meth:`noise_` adds to each coordinate; 0 for nothing."""
        return 0.0

    def epsilon(self, rounds: int) -> float | None:
        """Return what so many rounds cost a node; None where nothing is promised."""
        return None


class Untouched(Privacy):
    """The server changes neither updates nor their mean."""

    def clip_(self, updates: Updates, state: State, server_round: int) -> State:
        """Change nothing."""
        return state

    def noise_(self, mean: Tensor, nodes: int, state: State, server_round: int) -> None:
        """Change nothing."""


@dataclass(frozen=True)
class NoPrivacy(Untouched):
    """Updates and their mean stay as they are."""

    of_mean: ClassVar[bool] = True


@dataclass(frozen=True)
class Gaussian(Privacy):
    """What central and local privacy have in common.

    Parameters
    ----------
    clip : C, the largest l2 norm of a pseudo-gradient
    noise_multiplier : z, the noise's standard deviation in units of C; 0 protects nothing, and then a clip
        of infinity is :class:`NoPrivacy`, bit for bit
    delta : the probability with which epsilon may fail; well below one over the number of nodes
    stop_at_epsilon : the run ends before the round that would cost more; None for all rounds
    noise_seed : decides the noise; who knows it can take the noise off again. None: the operating system
        decides, and nobody can say the run again
    """

    clip: float = 1.0
    noise_multiplier: float = 1.0
    delta: float = 1e-5
    stop_at_epsilon: float | None = None
    noise_seed: int | None = None

    kind: ClassVar[str]
    distance: ClassVar[float] = 1.0  # how far a node can move what is noised, in units of C

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
            require(False, "privacy.stop_at_epsilon", limit, "null where there is next to no noise")
        elif limit is not None and first is not None:
            require(limit >= first, "privacy.stop_at_epsilon", limit, f"at least {first:.4g}, a round's")

    @property
    def fresh(self) -> bool:  # type: ignore[override]
        """Whether the operating system decides."""
        return self.noise_seed is None and self.noise_multiplier > 0

    def asks(self) -> dict[str, ConfigScalar]:
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
            told = f"weighting={type(weighting).__name__} may follow the nodes' data, and gets no noise"
            refuse(told, "set weighting=uniform")
        if aggregation.asks_for:
            refuse(f"nodes also send {aggregation.asks_for!r}, which gets no noise", "set aggregation=mean")

    def check(self, layout: Layout, extra: str | None) -> None:
        """Refuse running statistics, and control variates."""
        if extra:
            refuse(f"nodes also send {extra!r}, which gets no noise", "choose a strategy without it")
        if layout.num_buffers:
            name = next(layer.name for layer in layout.layers if layer.buffer)
            refuse(f"the model's buffer {name!r} gets no noise", "choose a model without batch norm")

    def epsilon(self, rounds: int) -> float | None:
        """Return what so many rounds cost a node, at ``delta``."""
        if self.noise_multiplier == 0:
            return None
        cost = accounting.epsilon(self.noise_multiplier / self.distance, rounds, self.delta)
        return cost if cost < float("inf") else None


@dataclass(frozen=True)
class LocalPrivacy(Untouched, Gaussian):
    """Each node cuts and noises its own update, with N(0, z^2 C^2 I), and sends nothing but that.

    The server sees no loss, number of examples or evaluation: what it makes of the updates costs no more.
    """

    of_mean: ClassVar[bool] = True
    at_nodes: ClassVar[bool] = True
    kind: ClassVar[str] = protocol.LOCAL
    evidence: ClassVar[dict[str, str]] = {protocol.PRIVACY: "does not say that it noised its update"}
    distance: ClassVar[float] = 2.0

    def asks(self) -> dict[str, ConfigScalar]:
        """Return also the seed, if there is one."""
        seed = {} if self.noise_seed is None else {protocol.PRIVACY_SEED: self.noise_seed}
        return super().asks() | seed


def refuse(reason: str, remedy: str) -> None:
    """Raise ``ValueError`` with the reason why a guarantee would not hold."""
    raise ValueError(f"privacy would not hold: {reason}; {remedy}, or set privacy=none")


def refuse_groups(privacy: Privacy) -> None:
    """Raise ``ValueError`` for privacy where groups of nodes have models of their own."""
    if type(privacy) is not NoPrivacy:
        refuse("each group's model shows who is in it", "choose a strategy with one model")
