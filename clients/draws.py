"""What a model itself draws from in training: dropout, say."""

import torch


def seed_model(seed: int, device: torch.device) -> None:
    """Seed torch's generators; ``torch.manual_seed`` would wake a GPU for the CPU's sake."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)
