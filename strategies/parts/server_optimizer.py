"""ServerOptimizer (P): which direction does the mean pseudo-gradient become?

A server optimizer maps the mean pseudo-gradient D [P] to a direction [P]; the server then moves
against it. What it remembers between rounds goes in and out as ``state``: a dict of tensors, empty
before the first round. It may write over both, since touching fresh memory costs more than the arithmetic.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from strategies.shared.checks import require

State = dict[str, Tensor]


class ServerOptimizer(ABC):
    """The letter P of the update rule."""

    # Whether the next state may lie in the mean's memory; False lets the parameters be written over it.
    keeps_mean: ClassVar[bool] = True

    @abstractmethod
    def __call__(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the direction and the state of the next round."""


@dataclass(frozen=True)
class Identity(ServerOptimizer):
    """P(D) = D: gradient descent on the server, as in FedAvg."""

    keeps_mean: ClassVar[bool] = False

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
    keeps_mean: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse a momentum outside [0, 1)."""
        require(0 <= self.beta < 1, "server_optimizer.beta", self.beta, "in [0, 1)")

    def __call__(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the accumulated direction."""
        momentum = state["momentum"].mul_(self.beta).add_(mean) if state else mean.clone()
        return momentum, {"momentum": momentum}


def beside(parameters: Tensor, state: State) -> State:
    """Return the state with its vectors where the parameters lie; a checkpoint's are in host memory."""
    return {name: value.to(parameters.device) if value.ndim else value for name, value in state.items()}


def copied(state: State) -> State:
    """Copy what the next round overwrites."""
    return {name: value.clone() for name, value in state.items()}
