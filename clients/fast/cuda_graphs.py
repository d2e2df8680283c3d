"""Capture a recorded step as one CUDA graph, launched instead of hundreds of operations.

A graph repeats the same operations on the same memory. It reads the parameters where they lie; the batch is
copied into tensors of the graph's own; the next step overwrites its gradients, so copy any that you keep.
What comes after the gradient (:class:`~clients.optimizer_step.GradientPipeline`) is part of it.
"""

from collections.abc import Callable, Sequence
from logging import getLogger
from typing import TypeVar

import torch
from torch import Tensor

from clients.optimizer_step import GradientPipeline

from .trace import Step

logger = getLogger("flwr.clients")


Results = TypeVar("Results")
StepResults = tuple[Sequence[Tensor], dict[str, Tensor]]
WARM_UP_STEPS = 3  # steps before a capture, in which the libraries choose their algorithms
EAGER_STEPS = 2  # eager steps of one shape come before it; a capture takes a fraction of a second
MAX_GRAPHS = 64  # graphs of a model: each holds memory of its own


class GraphCache:
    """The captured steps of one model, and the memory that they share from round to round."""

    def __init__(self) -> None:
        self.after = GradientPipeline()
        self._kind = self.after.kind
        self._memory: dict[object, list[Tensor]] = {}
        self._steps: dict[object, Step | None] = {}  # None where it cannot be captured

    def begin(self, after: GradientPipeline) -> GradientPipeline:
        """Begin a round; return what comes after its gradients, with its tensors in memory that stays."""
        memory = after.list_tensors()
        if memory:
            buffers = self._memory.setdefault(after.kind, [torch.empty_like(tensor) for tensor in memory])
            torch._foreach_copy_(buffers, memory)
            after = after.with_tensors(buffers)
        self.after, self._kind = after, after.kind
        return after

    def find(
        self, key: object, step: Step, parameters: Sequence[Tensor], batch: Sequence[Tensor]
    ) -> Step | None:
        """Return a recorded step and what comes after it as one graph; None where that is impossible."""
        place = key, self._kind, tuple(p.data_ptr() for p in parameters)
        if place not in self._steps:
            full = sum(graph is not None for graph in self._steps.values()) >= MAX_GRAPHS
            self._steps[place] = None if full else capture_step(step, parameters, batch, self.after)
        return self._steps[place]

    def clear(self) -> None:
        """Forget all steps; their model is another one now."""
        self._steps.clear()


def capture_step(
    step: Step, parameters: Sequence[Tensor], batch: Sequence[Tensor], after: GradientPipeline | None = None
) -> Step | None:
    """Return a recorded step, captured for these parameters and for batches of these shapes.

    None, and a line in the log, where it cannot be. Call it, and what it returns, under ``torch.no_grad``.
    The next call writes over the gradients that this one returns, not over the metrics' sums.
    """
    after = after or GradientPipeline()
    values, own = [p.detach() for p in parameters], [tensor.clone() for tensor in batch]
    before = [tensor.clone() for tensor in after.buffers]

    def whole() -> StepResults:
        gradients, sums = step(values, *own)
        return after(values, gradients), sums

    try:
        replay, (gradients, sums) = capture_graph(whole)
    except RuntimeError as error:  # an operation waits for the device, or allocates elsewhere
        reason = " ".join(str(error).split())
        logger.warning(
            "steps are not captured as a CUDA graph, their operations are launched one by one: %s", reason
        )
        return None
    finally:
        for buffer, value in zip(after.buffers, before, strict=True):
            buffer.copy_(value)

    def captured_step(_: Sequence[Tensor], *batch: Tensor) -> StepResults:
        for mine, value in zip(own, batch, strict=True):
            mine.copy_(value)
        replay()
        return gradients, {name: value.clone() for name, value in sums.items()}

    return captured_step


def capture_graph(run: Callable[[], Results]) -> tuple[Callable[[], None], Results]:
    """Return what repeats ``run`` as a CUDA graph, and the results that it writes anew each time.

    Raises
    ------
    RuntimeError : by torch, where ``run`` cannot be captured
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_STEPS):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    return graph.replay, results
