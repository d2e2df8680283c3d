"""Choose the device that the configuration names."""

import contextlib
import os
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from baselines.errors import UserError
from clients.fast.gradient import gradient_of
from strategies.shared.arrays import in_float64


def accelerator() -> torch.device | None:
    """Return the accelerator that torch can use on this machine (cuda, mps, xpu); None without one."""
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


def device_of(name: str) -> torch.device:
    """Return the device of this name; ``auto`` is an accelerator where there is one.

    Raises
    ------
    UserError : for a device that is not available
    """
    if name == "auto":
        return torch.empty(0, device=accelerator() or "cpu").device
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # no such device, or torch built without it
        available = [
            "cpu",
            *([accelerator_type.type] if (accelerator_type := accelerator()) else []),
            "auto",
        ]
        raise UserError(
            f"device={name} is not available here: expected {' or '.join(available)}"
        ) from error


def placed(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the model on its device.

    Raises
    ------
    UserError : for a model in float64 on a device that has no such numbers, as Apple's
    """
    wide = any(p.dtype == torch.float64 for p in model.parameters())
    if wide and in_float64(torch.zeros(1, device=device)).device.type != device.type:
        raise UserError(
            f"{device} has no float64, and the model is in it: set device=cpu, or float32 "
            "(for dataset=synthetic dataset.load.dtype=float32)"
        )
    return model.to(device)


def name_of(device: torch.device) -> str:
    """Return what its maker calls an accelerator, or its kind where torch does not know."""
    named = getattr(_module(device), "get_device_name", None)
    return str(named(device)) if named else device.type


def chosen(name: str) -> str | None:
    """Return what a run says of its device: what ``auto`` chose, or that a GPU is idle; else None."""
    best = accelerator()
    if name == "auto":
        return f"device=auto: {f'{best} ({name_of(best)})' if best else 'cpu, as torch sees no GPU here'}"
    if best and device_of(name).type == "cpu":
        return f"device={name}: {name_of(best)} is idle; device=auto uses it"
    return None


def watch_memory(device: torch.device) -> None:
    """Let :func:`peak_memory` count from now on."""
    reset = getattr(_module(device), "reset_peak_memory_stats", None)
    if reset:
        reset()


def peak_memory(device: torch.device) -> int | None:
    """Return the most bytes that tensors of this process took on an accelerator.

    None on the CPU, and where torch does not count.
    """
    counted = getattr(_module(device), "max_memory_allocated", None)
    return int(counted(device)) if counted else None


def _module(device: torch.device) -> types.ModuleType | None:
    """Return torch's functions for a kind of accelerator; None for the CPU, and where it has none."""
    with contextlib.suppress(RuntimeError):
        return None if device.type == "cpu" else torch.get_device_module(device)
    return None


# Precision: how a model computes on the hardware at hand; whoever trains it need not know.
#
# No choice changes what a model is: its parameters stay in their own precision, and travel as before.


WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # what cuBLAS reads before it is first used


def use_deterministic(is_deterministic: bool) -> None:
    """Let torch use algorithms alone that give the same bytes every time, or any, in this process.

    An operation without such an algorithm raises RuntimeError then. Call it before the GPU is used, as
    cuBLAS reads once how its workspace is laid out.
    """
    if is_deterministic:
        os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(is_deterministic)


@contextmanager
def deterministic_algorithms(is_deterministic: bool) -> Iterator[None]:
    """Do so for a while: the next run of this process may ask for something else."""
    before, workspace = torch.are_deterministic_algorithms_enabled(), os.environ.get(WORKSPACE)
    if is_deterministic:
        gradient_of.cache_clear()  # a step that the run before has recorded is the eager one to rounding
    try:
        use_deterministic(is_deterministic)
        yield
    finally:
        use_deterministic(before)
        if workspace is None:
            os.environ.pop(WORKSPACE, None)


def prepare_model(
    model: nn.Module, device: torch.device, autocast: object, channels_last: object
) -> nn.Module:
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
    if require_bool("channels_last", channels_last):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if autocast is not None:
        _compute_in(torch.bfloat16, model, device)
    return model


def require_bool(name: str, value: object) -> bool:
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
