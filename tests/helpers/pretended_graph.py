"""What stands in for a CUDA graph where there is no GPU: the operations of one run, repeated on its memory.

Like a graph it knows nothing of Python: numbers stay as they were, tensors are those of the capture, and an
operation that waits for the device cannot be captured.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clients.fast.cuda_graphs import WARM_UP_STEPS

Results = TypeVar("Results")
WAITS = torch.ops.aten._local_scalar_dense.default


class Noted(TorchDispatchMode):
    """Notes each operation, what it is given, and what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is WAITS:
            raise RuntimeError("CUDA error: operation not permitted\nwhen stream is capturing")
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result


def pretended(run: Callable[[], Results]) -> tuple[Callable[[], None], Results]:
    """Do as ``cuda_graphs.capture_graph``: warm up, note one run, and return what repeats it."""
    for _ in range(WARM_UP_STEPS):
        run()
    with Noted() as noted:
        results = run()

    def replay() -> None:
        for func, args, kwargs, result in noted.calls:
            if not func.is_view:
                anew = func(*args, **kwargs)
                for old, new in zip(tree_leaves(result), tree_leaves(anew), strict=True):
                    if isinstance(old, Tensor) and old is not new:
                        old.copy_(new)

    return replay, results
