"""Seed what a model itself draws in training, such as dropout."""

from types import ModuleType

import torch
from torch import Tensor


def seed_model(seed: int, device: torch.device) -> None:
    """Seed torch's generators; ``torch.manual_seed`` would wake a GPU for the CPU's sake."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def accelerator_states() -> list[Tensor]:
    """Return the states of an accelerator's generators; none where no accelerator has been used."""
    module = _in_use()
    if module is None:
        return []
    several = getattr(module, "get_rng_state_all", None)
    return list(several()) if several else [module.get_rng_state()]  # Apple's is one


def set_accelerator_states(states: list[Tensor]) -> None:
    """Let them draw from there on."""
    module = _in_use()
    if module is None or not states:
        return
    several = getattr(module, "set_rng_state_all", None)
    if several:
        several(states)
    else:
        module.set_rng_state(states[0])


def _in_use() -> ModuleType | None:
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if device is None:
        return None
    module: ModuleType = torch.get_device_module(device)
    awake = getattr(module, "is_initialized", None)
    return module if awake is None or awake() else None
