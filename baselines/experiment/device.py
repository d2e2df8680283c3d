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
from clients.fast.gradient import get_gradient
from strategies.shared.arrays import to_float64


def accelerator() -> torch.device | None:
    """Return the accelerator that torch can use on this machine (cuda, mps, xpu); None without one."""
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


def device_of(name: str) -> torch.device:
    """Return the named device; ``auto`` is the accelerator, or else the CPU.

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


def place_model(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the model on its device.

    Raises
    ------
    UserError : for a model in float64 on a device without float64, such as Apple's
    """
    wide = any(p.dtype == torch.float64 for p in model.parameters())
    if wide and to_float64(torch.zeros(1, device=device)).device.type != device.type:
        raise UserError(
            f"{device} has no float64, and the model is in it: set device=cpu, or float32 "
            "(for dataset=synthetic dataset.load.dtype=float32)"
        )
    return model.to(device)


def name_of(device: torch.device) -> str:
    """Return an accelerator's product name, or its type if torch does not know it."""
    named = getattr(_module(device), "get_device_name", None)
    return str(named(device)) if named else device.type


def describe_choice(name: str) -> str | None:
    """Return a line on the device: what ``auto`` chose, or that a GPU is idle; else None."""
    best = accelerator()
    if name == "auto":
        return f"device=auto: {f'{best} ({name_of(best)})' if best else 'cpu, as torch sees no GPU here'}"
    if best and device_of(name).type == "cpu":
        return f"device={name}: {name_of(best)} is idle; device=auto uses it"
    return None


def watch_memory(device: torch.device) -> None:
    """Reset the counter of :func:`peak_memory`."""
    reset = getattr(_module(device), "reset_peak_memory_stats", None)
    if reset:
        reset()


def peak_memory(device: torch.device) -> int | None:
    """Return the peak memory of this process' tensors on an accelerator, in bytes.

    None on the CPU, and where torch does not count.
    """
    counted = getattr(_module(device), "max_memory_allocated", None)
    return int(counted(device)) if counted else None


def _module(device: torch.device) -> types.ModuleType | None:
    """Return torch's module for a type of accelerator; None for the CPU, and if there is none."""
    with contextlib.suppress(RuntimeError):
        return None if device.type == "cpu" else torch.get_device_module(device)
    return None


# Precision: how a model computes on this hardware, independent of how it is trained.
#
# Parameters always stay in their own precision, and are sent in it.


WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # cuBLAS reads it before its first use


def use_deterministic(is_deterministic: bool) -> None:
    """Let torch use only deterministic algorithms in this process, or any.

    An operation without one then raises RuntimeError. Call this before the GPU is used, as cuBLAS reads
    its setting only once.
    """
    if is_deterministic:
        os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(is_deterministic)


@contextmanager
def deterministic_algorithms(is_deterministic: bool) -> Iterator[None]:
    """Use deterministic algorithms, or any, within this context; restore the setting afterwards."""
    before, workspace = torch.are_deterministic_algorithms_enabled(), os.environ.get(WORKSPACE)
    if is_deterministic:
        get_gradient.cache_clear()  # a step recorded by an earlier run equals the eager one only to rounding
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
    """Return the model, set to compute in the requested precision and memory format.

    Parameters
    ----------
    autocast : "bfloat16" computes convolutions and matrix products in 16 bits, and sensitive operations
        in 32 (``torch.autocast``); None computes in the parameters' precision
    channels_last : store convolution weights, and so images, pixel by pixel; sums change their order

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
    """Run the forward pass, and so the backward pass, under autocast; outputs have the model's own dtype."""
    model.forward = Cast(model.forward, device.type, dtype, next(model.parameters()).dtype)


@dataclass(eq=False)
class Cast:
    """A model's forward pass under autocast.

    Copying the model copies this object and rebinds ``forward`` to the copy. A closure would keep
    computing with the original's parameters.

    Parameters
    ----------
    forward : the model's own forward pass
    device_type : the type of device that computes it
    dtype, own : the dtypes of the computation and of the outputs
    """

    forward: Callable[..., Tensor]
    device_type: str
    dtype: torch.dtype
    own: torch.dtype

    def __call__(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """Return the model's outputs for a batch."""
        # A cached cast would hold the parameters as they were when the step was recorded.
        with torch.autocast(self.device_type, self.dtype, cache_enabled=False):
            return self.forward(*inputs, **named).to(self.own)
