"""Resident: a data set that lies on the accelerator, moved there once per process, where it fits.

Batches are then selected where they are trained on, and only the order of an epoch goes there. Which
batches there are, and what is in them, is the same either way.
"""

import logging

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

logger = logging.getLogger("flwr.clients")
_copies: dict[torch.device, WeakTensorKeyDictionary] = {}


def resident(values: Tensor, device: torch.device, share: float) -> Tensor:
    """Return ``values`` on ``device`` where they take at most ``share`` of its free memory.

    Otherwise as they are, in host memory. What the first call of a process decides holds for all of them.
    """
    if device.type == "cpu":
        return values
    copies = _copies.setdefault(device, WeakTensorKeyDictionary())  # type: ignore[no-untyped-call]
    if values not in copies:
        copies[values] = _moved(values, device, share)
    copy = copies[values]
    return values if copy is None else copy


def _moved(values: Tensor, device: torch.device, share: float) -> Tensor | None:
    if values.nbytes <= share * memory_of(device)[0]:
        return values.to(device)
    logger.warning(
        "%.1f GB of examples are more than device_memory_share=%g of what is free on %s: they stay in host "
        "memory, and batches go to the device one by one",
        values.nbytes / 1e9,
        share,
        device,
    )
    return None


def memory_of(device: torch.device) -> tuple[int, int]:
    """Return how many bytes of an accelerator are free, and how many it has.

    0 on the CPU, and for a kind that does not say.
    """
    module = None if device.type == "cpu" else torch.get_device_module(device)
    if told := getattr(module, "mem_get_info", None):
        free, total = told(device)
        return int(free), int(total)
    if most := getattr(module, "recommended_max_memory", None):  # Apple's, which is the machine's own
        total = int(most())
        return max(0, total - int(module.driver_allocated_memory())), total  # type: ignore[union-attr]
    return 0, 0
