"""Capture a recorded step as one CUDA graph, launched instead of hundreds of operations.

A graph repeats the same operations on the same memory. It reads the parameters where they lie; the batch is
copied into tensors of the graph's own; and its results lie where the next step writes its own: whoever
keeps any copies it. What comes after the gradient (:mod:`clients.fast.cuda_graphs`) is part of it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from logging import getLogger
from typing import TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from clients.correction import GradientTransform, Tensors

from .bare_optimizer import is_descent
from .trace import Step

logger = getLogger("flwr.clients")


# Corrections that are edits, clipping, and SGD's weight decay and momentum are ``torch._foreach_*``
# operations that a CUDA graph can repeat. The learning rate is in none of them, since a graph would
# repeat the rate that it was captured with: w <- w - lr d, or the whole step of another optimiser,
# comes afterwards.


Clip = Callable[[Tensors, float], Tensors]


@dataclass(frozen=True)
class GradientPipeline:
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

    edits: Sequence[GradientTransform] = ()
    clip: Clip | None = None
    limit: float = 0.0
    descends: bool = False
    decay: float = 0.0
    momentum: float = 0.0
    nesterov: bool = False
    buffers: Tensors = ()
    stacked: bool = False

    def __call__(self, parameters: Sequence[Tensor], raw_gradients: Sequence[Tensor]) -> Tensors:
        """Return d where it descends, else the gradients that the optimiser gets.

        Parameters
        ----------
        parameters : where the gradients were taken
        raw_gradients : nothing done to them
        """
        values: Tensors = list(parameters)
        gradients: Tensors = list(raw_gradients)
        for edit in self.edits:
            fixed = [self._first(tensors, gradients) for tensors in edit.fixed]
            gradients = edit.apply(gradients, values, *fixed, *edit.numbers)
        if self.clip is not None:
            gradients = self.clip(gradients, self.limit)
        if self.decay:
            gradients = torch._foreach_add(gradients, values, alpha=self.decay)
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

    def on(self, memory: Sequence[Tensor]) -> "GradientPipeline":
        """Return the same with other tensors in place of :meth:`memory`."""
        ahead = iter(memory)
        edits = [replace(e, fixed=[[next(ahead) for _ in ts] for ts in e.fixed]) for e in self.edits]
        return replace(self, edits=edits, buffers=[next(ahead) for _ in self.buffers])


def with_sgd(
    after: GradientPipeline, optimizer: Optimizer, parameters: Sequence[Tensor]
) -> GradientPipeline:
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


# An eager step is launched operation by operation, a recorded one replayed without autograd, a captured
# one replayed as one graph of the accelerator's. A step of batched nodes counts once.


EAGER, RECORDED, CAPTURED = "eager", "recorded", "captured"
_taken: Counter[str] = Counter({EAGER: 0, RECORDED: 0, CAPTURED: 0})


def count_step(way: str) -> None:
    """Count a step."""
    _taken[way] += 1


def count_steps() -> dict[str, int]:
    """Return how many steps were taken in each way since the process began."""
    return dict(_taken)


def steps_since(before: dict[str, int]) -> dict[str, int]:
    """Return how many were taken in each way after :func:`steps` returned ``before``."""
    return {way: count - before[way] for way, count in _taken.items()}


Results = TypeVar("Results")
OfStep = tuple[Sequence[Tensor], dict[str, Tensor]]
WARM_UP = 3  # steps before a capture, in which the libraries choose their algorithms
AFTER = 2  # eager steps of one shape come before it; a capture takes a fraction of a second
MOST = 64  # graphs of a model: each holds memory of its own


def can_capture(device: torch.device) -> bool:
    """Say whether steps on a device can be captured."""
    return device.type == "cuda"


class Graphs:
    """The captured steps of one model, and the memory that they share from round to round."""

    def __init__(self) -> None:
        self.after = GradientPipeline()
        self._kind = self.after.kind
        self._memory: dict[object, list[Tensor]] = {}
        self._steps: dict[object, Step | None] = {}  # None where it cannot be captured

    def begin(self, after: GradientPipeline) -> GradientPipeline:
        """Begin a round; return what comes after its gradients, on the memory that stays."""
        memory = after.memory()
        if memory:
            kept = self._memory.setdefault(after.kind, [torch.empty_like(tensor) for tensor in memory])
            torch._foreach_copy_(kept, memory)
            after = after.on(kept)
        self.after, self._kind = after, after.kind
        return after

    def take(
        self, key: object, step: Step, parameters: Sequence[Tensor], batch: Sequence[Tensor]
    ) -> OfStep:
        """Take a recorded step and what comes after it, captured where that can be."""
        place = key, self._kind, tuple(p.data_ptr() for p in parameters)
        if place not in self._steps:
            full = sum(graph is not None for graph in self._steps.values()) >= MOST
            self._steps[place] = None if full else captured(step, parameters, batch, self.after)
        graph = self._steps[place]
        if graph is not None:
            count_step(CAPTURED)
            return graph(parameters, *batch)
        count_step(RECORDED)
        gradients, sums = step(parameters, *batch)
        return self.after(parameters, gradients), sums

    def clear(self) -> None:
        """Forget all steps; their model is another one now."""
        self._steps.clear()


def captured(
    step: Step, parameters: Sequence[Tensor], batch: Sequence[Tensor], after: GradientPipeline | None = None
) -> Step | None:
    """Return a recorded step, captured for these parameters and for batches of these shapes.

    None, and a line, where it cannot be. Call it, and what it returns, under ``torch.no_grad``. The next
    call writes over the gradients that this one returns, not over the metrics' sums.
    """
    after = after or GradientPipeline()
    values, own = [p.detach() for p in parameters], [tensor.clone() for tensor in batch]
    before = [tensor.clone() for tensor in after.buffers]

    def whole() -> OfStep:
        gradients, sums = step(values, *own)
        return after(values, gradients), sums

    try:
        replay, (gradients, sums) = capture(whole)
    except RuntimeError as error:  # an operation waits for the device, or allocates elsewhere
        reason = " ".join(str(error).split())
        logger.warning("steps are not captured as a CUDA graph, their operations go one by one: %s", reason)
        return None
    finally:
        for buffer, value in zip(after.buffers, before, strict=True):
            buffer.copy_(value)

    def captured_step(_: Sequence[Tensor], *batch: Tensor) -> OfStep:
        for mine, given in zip(own, batch, strict=True):
            mine.copy_(given)
        replay()
        return gradients, {name: value.clone() for name, value in sums.items()}

    return captured_step


def capture(run: Callable[[], Results]) -> tuple[Callable[[], None], Results]:
    """Return what repeats ``run`` as a CUDA graph, and the results that it writes anew each time.

    Raises
    ------
    RuntimeError : by torch, where ``run`` cannot be captured
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    return graph.replay, results
