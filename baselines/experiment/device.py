"""Device: where a run computes, by the name that the configuration gives it."""

import contextlib
import types

import torch
from torch import nn

from baselines.errors import UserError
from strategies.shared.float64 import in_float64


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
        there = ["cpu", *([found.type] if (found := accelerator()) else []), "auto"]
        raise UserError(f"device={name} is not available here: expected {' or '.join(there)}") from error


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
    found = accelerator()
    if name == "auto":
        return (
            f"device=auto: {f'{found} ({name_of(found)})' if found else 'cpu, as torch sees no GPU here'}"
        )
    if found and device_of(name).type == "cpu":
        return f"device={name}: {name_of(found)} is idle; device=auto uses it"
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
