"""The model of an experiment, and the device that it computes on."""

from collections.abc import Callable

import torch
from omegaconf import DictConfig
from torch import nn

from baselines.datasets import Dataset
from baselines.errors import UserError
from strategies.shared.seeding import Purpose, torch_seed

from . import config, precision


def device_of(name: str) -> torch.device:
    """Return the device of this name; ``auto`` is a GPU where there is one.

    Raises
    ------
    UserError : for a device that is not available
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # no such device, or torch built without it
        raise UserError(
            f"device={name} is not available on this machine: expected cpu, cuda or auto"
        ) from error


def model_of(cfg: DictConfig, dataset: Callable[[], Dataset]) -> nn.Module:
    """Return a fresh model on its device: the same initial parameters for the same seed.

    The data set is asked for only where the configuration leaves the shape or the classes to it.
    """
    measured: dict[str, object] = {}  # what the configuration leaves to the data
    if cfg.dataset.shape is None:
        measured["input_shape"] = list(dataset().train_inputs.shape[1:])
    if cfg.dataset.num_classes is None:
        measured["num_classes"] = dataset().num_classes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(cfg.seed, Purpose.INITIAL_MODEL))
        model: nn.Module = config.build(cfg.model, **measured)
    device = device_of(cfg.device)
    return precision.prepared(model.to(device), device, cfg.autocast, cfg.channels_last)
