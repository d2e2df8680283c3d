"""Graphs: a recorded step as one CUDA graph, launched at once in the place of its hundreds of operations.

A graph repeats the same operations on the same memory. So a step's arguments are copied into tensors of the
graph's own, and its results lie where the next step writes its own: whoever keeps any copies it.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from .replay import Step

logger = logging.getLogger("flwr.clients")
Results = TypeVar("Results")
WARM_UP = 3  # steps before a capture, in which the libraries choose their algorithms
AFTER = 2  # eager steps of one shape come before it; a capture takes a fraction of a second
MOST = 64  # graphs of a model: each holds memory of its own


def capturable(device: torch.device) -> bool:
    """Say whether steps on a device can be captured."""
    return device.type == "cuda"


def captured(step: Step, parameters: Sequence[Tensor], batch: Sequence[Tensor]) -> Step | None:
    """Return a recorded step, captured for arguments of these shapes; None, and a line, where it cannot be.

    Call it, and what it returns, under ``torch.no_grad``. The next call writes over the gradients that this
    one returns, not over the metrics' sums.
    """
    count = len(parameters)
    own = [tensor.detach().clone() for tensor in (*parameters, *batch)]
    try:
        replay, (gradients, sums) = capture(lambda: step(own[:count], *own[count:]))
    except RuntimeError as error:  # an operation waits for the device, or allocates elsewhere
        told = " ".join(str(error).split())
        logger.warning("steps are not captured as a CUDA graph, their operations go one by one: %s", told)
        return None

    def captured_step(
        parameters: Sequence[Tensor], *batch: Tensor
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        torch._foreach_copy_(own[:count], [p.detach() for p in parameters])
        for mine, given in zip(own[count:], batch, strict=True):
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
