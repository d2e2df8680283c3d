"""After: what a step does between the gradient and the optimiser's last operation, on memory that stays.

Corrections that are edits, clipping, and SGD's weight decay and momentum are ``torch._foreach_*``
operations that a CUDA graph can repeat. The learning rate is in none of them, since a graph would repeat
the rate that it was captured with: w <- w - lr d, or the whole step of another optimiser, comes afterwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from logging import getLogger

import torch
from torch import Tensor
from torch.optim import Optimizer

from clients.correction import Edit, Tensors

from .bare_optimizer import is_descent

logger = getLogger("flwr.clients")
Clip = Callable[[Tensors, float], Tensors]


@dataclass(frozen=True)
class After:
    """What becomes of the gradients of one node, or of a stack of nodes.

    Parameters
    ----------
    edits : the corrections, in order
    clip, limit : a function of the gradients and the greatest norm; None where nothing is clipped
    descends : whether what it returns is SGD's direction d
    decay, momentum, nesterov : of SGD
    buffers : of its momentum; zeros when a round begins
    stacked : whether tensors have a first axis over nodes, of which the first ones may be left alone
    """

    edits: Sequence[Edit] = ()
    clip: Clip | None = None
    limit: float = 0.0
    descends: bool = False
    decay: float = 0.0
    momentum: float = 0.0
    nesterov: bool = False
    buffers: Tensors = ()
    stacked: bool = False

    def __call__(self, there: Sequence[Tensor], found: Sequence[Tensor]) -> Tensors:
        """Return d where it descends, else the gradients that the optimiser gets.

        Parameters
        ----------
        there : the parameters
        found : their gradients
        """
        parameters: Tensors = list(there)
        gradients: Tensors = list(found)
        for edit in self.edits:
            fixed = [self._first(tensors, gradients) for tensors in edit.fixed]
            gradients = edit.apply(gradients, parameters, *fixed, *edit.numbers)
        if self.clip is not None:
            gradients = self.clip(gradients, self.limit)
        if self.decay:
            gradients = torch._foreach_add(gradients, parameters, alpha=self.decay)
        if self.momentum:
            buffers = self._first(self.buffers, gradients)
            torch._foreach_mul_(buffers, self.momentum)
            torch._foreach_add_(buffers, gradients)
            gradients = (
                torch._foreach_add(gradients, buffers, alpha=self.momentum) if self.nesterov else buffers
            )
        return gradients

    def _first(self, tensors: Tensors, gradients: Tensors) -> Tensors:
        """Return the part of the nodes that have not finished."""
        return [t[: len(g)] for t, g in zip(tensors, gradients, strict=True)] if self.stacked else tensors

    @property
    def kind(self) -> tuple[object, ...]:
        """What is equal where a graph of the one does for the other, on its own memory."""
        numbers = self.limit, self.descends, self.decay, self.momentum, self.nesterov, self.stacked
        shapes = tuple(tensor.shape for tensor in self.memory())
        return tuple(edit.kind for edit in self.edits), self.clip, numbers, shapes

    def memory(self) -> list[Tensor]:
        """Return all tensors that it reads, or writes, besides parameters and gradients."""
        return [t for edit in self.edits for tensors in edit.fixed for t in tensors] + list(self.buffers)

    def on(self, memory: Sequence[Tensor]) -> "After":
        """Return the same with other tensors in the place of :meth:`memory`."""
        ahead = iter(memory)
        edits = [replace(e, fixed=[[next(ahead) for _ in ts] for ts in e.fixed]) for e in self.edits]
        return replace(self, edits=edits, buffers=[next(ahead) for _ in self.buffers])


def with_sgd(after: After, optimizer: Optimizer, parameters: Sequence[Tensor]) -> After:
    """Return it with the step of a fresh optimiser, but for its last operation; where it can.

    Momentum begins with zeros, which is what torch's begins with but for its dampening. One line says what
    is left out.
    """
    if not is_descent(optimizer):
        say_outside(f"the step of {type(optimizer).__name__} as it is configured")
        return after
    group = optimizer.param_groups[0]
    momentum = float(group["momentum"])
    return replace(
        after,
        descends=True,
        decay=float(group["weight_decay"]),
        momentum=momentum,
        nesterov=bool(group["nesterov"]),
        buffers=[torch.zeros_like(p) for p in parameters] if momentum else (),
    )


@lru_cache(maxsize=64)
def say_outside(what: str) -> None:
    """Say, once, what is not part of captured steps."""
    logger.warning("%s is not part of the CUDA graph of a step: its operations go one by one", what)
