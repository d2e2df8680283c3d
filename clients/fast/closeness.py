"""Closeness: are two ways to compute a gradient the same but for rounding?

A program that computes something else is wrong by about the gradient's own length (the gradient of what it
does not see is 0); another order of summation by a few units in the last place, times what sums cancel.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

TOLERANCE = 0.01  # of a parameter's gradient; a maximum that is another one may cost this much
FLOOR = 1e-4  # of all gradients together: what is below has cancelled
UNITS = 32  # of the coarsest precision in use: 0.25 in bfloat16, where maxima are often other ones


class Coarsest(TorchDispatchMode):
    """Notes the coarsest precision that is computed in."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.eps = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note the result's precision."""
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_floating_point():
            self.eps = max(self.eps, torch.finfo(result.dtype).eps)
        return result


@contextmanager
def without_tf32() -> Iterator[None]:
    """Let a GPU compute float32 with all of its bits meanwhile.

    TF32, which convolutions are in by default there, keeps 10 of them: what has cancelled in a gradient
    can then differ by more than rounding where nothing is wrong.
    """
    kinds: list[Any] = [torch.backends.cudnn, torch.backends.cuda.matmul]
    try:
        before = [kind.allow_tf32 for kind in kinds]
    except RuntimeError:  # torch's newer names have been used, by which kinds of operations can differ
        kinds, before = [], []
    try:
        for kind in kinds:
            kind.allow_tf32 = False
        yield
    finally:
        for kind, allowed in zip(kinds, before, strict=True):
            kind.allow_tf32 = allowed


def close(found: Sequence[Tensor], expected: Sequence[Tensor], eps: float) -> bool:
    """Say whether two gradients are equal to rounding, parameter by parameter.

    The difference's norm may be ``TOLERANCE`` of a parameter's gradient plus ``FLOOR`` of the whole one, or
    where the precision ``eps`` is coarse ``UNITS`` and ``UNITS / 8`` of it. What is not finite, in the same
    parameters of both, is equal.
    """
    norms = _norms(expected)
    share = max(TOLERANCE, UNITS * eps)
    allowed = share * norms + max(FLOOR, UNITS / 8 * eps) * norms[norms.isfinite()].norm()
    apart = _norms([a - b for a, b in zip(found, expected, strict=True)])
    neither = ~norms.isfinite() & ~_norms(found).isfinite()
    within = (apart <= allowed) & norms.isfinite()  # infinity is within infinity
    return bool((within | neither).all())


def tells(gradient: Sequence[Tensor]) -> bool:
    """Say whether a gradient can tell a right program from a wrong one: it is finite, and not 0."""
    norm = _norms(gradient).norm()
    return bool(norm.isfinite() & (norm > 0))


def _norms(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.detach().cpu().double().norm() for tensor in tensors])
