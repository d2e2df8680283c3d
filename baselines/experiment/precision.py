"""Precision: how a model computes on the hardware at hand; whoever trains it need not know.

No choice changes what a model is: its parameters stay in their own precision, and travel as before.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from baselines.errors import UserError
from clients.gradient import gradient_of

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # what cuBLAS reads before it is first used


def use_deterministic(asked: bool) -> None:
    """Let torch use algorithms alone that give the same bytes every time, or any, in this process.

    An operation without such an algorithm raises RuntimeError then. Call it before the GPU is used, as
    cuBLAS reads once how its workspace is laid out.
    """
    if asked:
        os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(asked)


@contextmanager
def deterministic(asked: bool) -> Iterator[None]:
    """Do so for a while: the next run of this process may ask for something else."""
    before, workspace = torch.are_deterministic_algorithms_enabled(), os.environ.get(WORKSPACE)
    if asked:
        gradient_of.cache_clear()  # a step that the run before has recorded is the eager one to rounding
    try:
        use_deterministic(asked)
        yield
    finally:
        use_deterministic(before)
        if workspace is None:
            os.environ.pop(WORKSPACE, None)


def prepared(model: nn.Module, device: torch.device, autocast: object, channels_last: object) -> nn.Module:
    """Return the model, made to compute as asked.

    Parameters
    ----------
    autocast : "bfloat16" computes convolutions and matrix products, forward and backward, in 16 bits, and
        what is sensitive to it in 32 (``torch.autocast``); None leaves everything in the parameters' own
    channels_last : let the weights of convolutions, and so the images between them, lie in memory pixel by
        pixel; the same sums, in another order

    Raises
    ------
    UserError : for any other choice
    """
    if autocast not in (None, "bfloat16"):  # float16 would need its loss scaled
        raise UserError(f"autocast={autocast} is unknown: expected bfloat16, or null")
    if yes_or_no("channels_last", channels_last):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if autocast is not None:
        _compute_in(torch.bfloat16, model, device)
    return model


def yes_or_no(name: str, value: object) -> bool:
    """Return a setting that is true or false.

    Raises
    ------
    UserError : for any other value
    """
    if not isinstance(value, bool):
        raise UserError(f"{name}={value} is unknown: expected true or false")
    return value


def _compute_in(dtype: torch.dtype, model: nn.Module, device: torch.device) -> None:
    """Run the forward pass, and so the backward pass, under autocast; return what is in the model's own."""
    model.forward = Cast(model.forward, device.type, dtype, next(model.parameters()).dtype)


@dataclass(eq=False)
class Cast:
    """A model's forward pass under autocast.

    A copy of the model gets a copy of this, with the copy's own forward pass: ``forward`` is bound to it. A
    function would go on computing with the parameters of the model that it was made for.

    Parameters
    ----------
    forward : the model's own
    device_type : where it computes
    dtype, own : what it computes in, and what it returns
    """

    forward: Callable[..., Tensor]
    device_type: str
    dtype: torch.dtype
    own: torch.dtype

    def __call__(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """Return what the model says of a batch."""
        # A cached cast would be that of the parameters as they were when the step was recorded.
        with torch.autocast(self.device_type, self.dtype, cache_enabled=False):
            return self.forward(*inputs, **named).to(self.own)
