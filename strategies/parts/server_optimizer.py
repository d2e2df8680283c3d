"""ServerOptimizer (P): turn the mean pseudo-gradient into a direction.

A server optimizer maps the mean pseudo-gradient D [P] to a direction [P]; the server then moves
against it, with one eta for all layers unless the optimizer scales them. What it remembers between
rounds goes in and out as ``state``: a dict of tensors, empty before the first round. It may write over D
and ``state``, since touching fresh memory costs more than the arithmetic.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from strategies.shared.checks import require
from strategies.shared.flower_names import HasHooks

from .layout import Layout, block_size, blocks, layer_norms
from .updates import NoStep, describe_value, require_by_layer, require_pair

State = dict[str, Tensor]


class ServerOptimizer(HasHooks, ABC):
    """The letter P of the update rule."""

    is_mean_reused: ClassVar[bool] = True  # whether the next state may lie in the mean's memory

    @abstractmethod
    def __call__(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the direction and the state of the next round."""

    def scale_layers(self, direction: Tensor, start: Tensor, layout: Layout) -> Tensor | None:
        """Return a factor of eta for each of ``layout.parameters``, [L]; None: they all move by eta.

        ``direction`` [P] is that of ``__call__``, and ``start`` [P] w_t; neither may be changed.
        """
        return None


@dataclass(frozen=True)
class Identity(ServerOptimizer):
    """P(D) = D: gradient descent on the server, as in FedAvg."""

    is_mean_reused: ClassVar[bool] = False

    def __call__(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the mean itself."""
        return mean, state


@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """m <- beta m + D; P(D) = m (FedAvgM: Hsu et al. 2019, section 4.3).

    Parameters
    ----------
    beta : momentum in [0, 1); beta = 0 is :class:`Identity`
    """

    beta: float = 0.9
    is_mean_reused: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse a momentum outside [0, 1)."""
        require(0 <= self.beta < 1, "server_optimizer.beta", self.beta, "in [0, 1)")

    def __call__(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the accumulated direction."""
        momentum = state["momentum"].mul_(self.beta).add_(mean) if state else mean.clone()
        return momentum, {"momentum": momentum}


def apply_optimizer(optimizer: ServerOptimizer, mean: Tensor, state: State) -> tuple[Tensor, State]:
    """Return the direction [P] and the optimizer's next state; raise ``NoStep`` for an invalid result."""
    shape = mean.shape
    direction, state = require_pair("server_optimizer", optimizer, optimizer(mean, state))
    if not isinstance(direction, Tensor) or direction.shape != shape:
        blame = f"server_optimizer={type(optimizer).__name__} gave {describe_value(direction)}"
        raise NoStep(f"{blame}, expected a tensor of shape {tuple(shape)}")
    return direction, state


def scale_step_size(
    optimizer: ServerOptimizer, eta: float | Tensor, direction: Tensor, start: Tensor, layout: Layout
) -> float | Tensor:
    """Return eta[t], by layer [L] where the optimizer scales layers; raise ``NoStep`` for invalid factors."""
    factors = optimizer.scale_layers(direction, start, layout)
    if factors is None:
        return eta
    return eta * require_by_layer("server_optimizer", optimizer, factors, layout)


def move_state(parameters: Tensor, state: State) -> State:
    """Return the state with its vectors where the parameters lie; a checkpoint's are in host memory."""
    return {name: value.to(parameters.device) if value.ndim else value for name, value in state.items()}


def copy_state(state: State) -> State:
    """Copy what the next round overwrites."""
    return {name: value.clone() for name, value in state.items()}


# Adaptive server optimizers: FedAdagrad, FedAdam, FedYogi.
#
# Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: *Adaptive Federated Optimization*, ICLR
# 2021, Algorithm 2. With D the mean pseudo-gradient of the round (all operations by coordinate):
#
#     m <- beta1 m + (1 - beta1) D
#     v <- v + D^2                                        Adagrad
#          beta2 v + (1 - beta2) D^2                      Adam
#          v - (1 - beta2) D^2 sign(v - D^2)              Yogi
#     P(D) = m / (sqrt(v) + epsilon)        epsilon is the paper's tau, the adaptivity
#
# Deviations: v starts at 0, as Flower's; the paper asks for v >= epsilon^2. Options: ``epsilon_inside`` gives
# m / sqrt(v + epsilon), which the FedExP paper's FedAdagrad uses. ``bias_correction`` divides m and v by
# 1 - beta^t as Kingma and Ba (2015) do, Algorithm 2 does not. (Yogi's as well, as in declearn, though its v grows by
# (1 - beta2) D^2 a round where D stays.) Flower's own FedAdam corrects with the exponent t + 1, its FedYogi and
# FedAdagrad do not correct.


@dataclass(frozen=True, kw_only=True)
class Adaptive(ServerOptimizer):
    """Base of Adagrad, Adam and Yogi.

    Parameters
    ----------
    beta1 : decay of the first moment m, in [0, 1); 0 uses the mean itself
    epsilon : the adaptivity, 0 or above; with ``beta1=0``, large is nearly :class:`Identity`,
        scaled by 1 / epsilon
    epsilon_inside : add epsilon to v under the square root instead of to the root
    bias_correction : make up for m = v = 0 at the start
    """

    beta1: float = 0.9
    epsilon: float = 1e-3
    epsilon_inside: bool = False
    bias_correction: bool = False
    is_mean_reused: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require(0 <= self.beta1 < 1, "server_optimizer.beta1", self.beta1, "in [0, 1)")
        valid = 0 <= self.epsilon < float("inf")
        require(valid, "server_optimizer.epsilon", self.epsilon, "0 or above")

    def __call__(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        """Return m / (sqrt(v) + epsilon), over the mean; 0 where both are 0."""
        if not state:
            m, v = torch.zeros_like(mean), torch.zeros_like(mean)
            state = {"m": m, "v": v, "rounds": torch.tensor(0)}
        rounds = state["rounds"] + 1
        scale_m, scale_v = 1.0, 1.0
        if self.bias_correction:
            scale_m = 1 - self.beta1 ** int(rounds)
            scale_v = self._second_bias(int(rounds))
        tiny = torch.finfo(mean.dtype).tiny
        scratch = torch.empty_like(mean[: block_size(mean)])
        for block in blocks(mean):
            d, m, v = mean[block], state["m"][block], state["v"][block]
            root = scratch[: len(d)]
            m.lerp_(d, 1 - self.beta1)
            self._second_moment(v, d, root)
            torch.div(v, scale_v, out=root)
            if self.epsilon_inside:
                root.add_(self.epsilon).sqrt_()
            else:
                root.sqrt_().add_(self.epsilon)
            if self.epsilon < tiny:
                root.clamp_min_(tiny)  # 0 / 0 is no direction
            torch.div(m, root.mul_(scale_m) if self.bias_correction else root, out=d)
            if self.epsilon < tiny:
                d.masked_fill_(v == 0, 0)  # where D is not 0, its square has underflowed
        return mean, {**state, "rounds": rounds}

    @abstractmethod
    def _second_moment(self, v: Tensor, mean: Tensor, scratch: Tensor) -> None:
        """Renew v in place; ``scratch``, of the same shape, may be overwritten."""

    @abstractmethod
    def _second_bias(self, rounds: int) -> float:
        """Return E[v] / E[D^2] after ``rounds`` rounds from v = 0, for a D that does not change."""


@dataclass(frozen=True, kw_only=True)
class Adagrad(Adaptive):
    """v is the sum of all squares; the paper uses beta1 = 0."""

    beta1: float = 0.0

    def _second_moment(self, v: Tensor, mean: Tensor, scratch: Tensor) -> None:
        v.addcmul_(mean, mean)

    def _second_bias(self, rounds: int) -> float:
        return 1.0  # a sum is not meant to be an average


@dataclass(frozen=True, kw_only=True)
class Decaying(Adaptive):
    """v forgets: the decay ``beta2`` lies in [0, 1)."""

    beta2: float = 0.99

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        require(0 <= self.beta2 < 1, "server_optimizer.beta2", self.beta2, "in [0, 1)")

    def _second_bias(self, rounds: int) -> float:
        return float(1 - self.beta2**rounds)


@dataclass(frozen=True, kw_only=True)
class Adam(Decaying):
    """v is the exponential average of the squares."""

    def _second_moment(self, v: Tensor, mean: Tensor, scratch: Tensor) -> None:
        v.mul_(self.beta2).addcmul_(mean, mean, value=1 - self.beta2)


@dataclass(frozen=True, kw_only=True)
class Yogi(Decaying):
    """v moves towards the squares by a step that does not depend on how far they are."""

    def _second_moment(self, v: Tensor, mean: Tensor, scratch: Tensor) -> None:
        squared = torch.mul(mean, mean, out=scratch)
        v.add_(torch.sub(v, squared).sign_().mul_(squared), alpha=self.beta2 - 1)


@dataclass(frozen=True, kw_only=True)
class AMS(ServerOptimizer):
    """m / sqrt(v^), with v^ the largest v so far, epsilon at least (FedAMS: Wang, Lin, Chen, ICML 2022).

    m and v are those of :class:`Adam`; nothing is added to the root.

    Parameters
    ----------
    beta1, beta2 : decays of the first and the second moment, in [0, 1)
    epsilon : the least v^, above 0
    """

    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-3
    is_mean_reused: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require(0 <= self.beta1 < 1, "server_optimizer.beta1", self.beta1, "in [0, 1)")
        require(0 <= self.beta2 < 1, "server_optimizer.beta2", self.beta2, "in [0, 1)")
        valid = 0 < self.epsilon < float("inf")
        require(valid, "server_optimizer.epsilon", self.epsilon, "above 0")

    def __call__(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        """Return m / sqrt(v^), over the mean."""
        if not state:
            m, v = torch.zeros_like(mean), torch.zeros_like(mean)
            state = {"m": m, "v": v, "largest": torch.full_like(mean, self.epsilon)}
        for block in blocks(mean):
            d, m, v, largest = mean[block], state["m"][block], state["v"][block], state["largest"][block]
            m.lerp_(d, 1 - self.beta1)
            v.mul_(self.beta2).addcmul_(d, d, value=1 - self.beta2)
            torch.maximum(largest, v, out=largest)
            torch.div(m, torch.sqrt(largest, out=d), out=d)
        return mean, state


# Layer-wise server optimizers: FedLARS, FedLAMB (:mod:`strategies.fedlars` has the sources).
#
# An array w_l of the model moves by r_l = ||w_l|| / (||P_l|| + epsilon) times its direction P_l: by a share of
# its own length, whatever the nodes' learning rate. r_l = 1 where w_l or P_l is 0, as at a bias that starts
# at 0. A mask acts afterwards: the ratio is that of the whole P_l.


def trust_ratios(direction: Tensor, start: Tensor, layout: Layout, epsilon: float = 0.0) -> Tensor:
    """Return r_l for each parameter array, [L]."""
    w, p = layer_norms(start, layout), layer_norms(direction, layout)
    return torch.where((w > 0) & (p > 0), w / (p + epsilon), 1.0)


@dataclass(frozen=True, kw_only=True)
class LARS(Momentum):
    """m <- beta m + (1 - beta) D; P(D) = m, each array scaled to the norm of its weights (FedLARS).

    Parameters
    ----------
    beta : momentum in [0, 1); 0 takes the round's D alone
    epsilon : added to the norm of m, 0 or above; far above that norm, the direction is m ||w|| / epsilon
    """

    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        valid = 0 <= self.epsilon < float("inf")
        require(valid, "server_optimizer.epsilon", self.epsilon, "0 or above")

    def __call__(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        """Return m."""
        return super().__call__(mean.mul_(1 - self.beta), state)

    def scale_layers(self, direction: Tensor, start: Tensor, layout: Layout) -> Tensor:
        """Return ||w_l|| / (||m_l|| + epsilon); 1 where either norm is 0."""
        return trust_ratios(direction, start, layout, self.epsilon)


@dataclass(frozen=True, kw_only=True)
class LAMB(Adam):
    """Adam's direction, each array scaled to the norm of its weights (FedLAMB)."""

    bias_correction: bool = True

    def scale_layers(self, direction: Tensor, start: Tensor, layout: Layout) -> Tensor:
        """Return ||w_l|| / ||P_l||; 1 where either is 0."""
        return trust_ratios(direction, start, layout)
