"""The model of an experiment, on the device that it computes on."""

import warnings
from collections.abc import Callable
from functools import partial

import torch
from omegaconf import DictConfig
from torch import nn

from baselines.datasets import Dataset
from strategies.shared.seeding import Purpose, torch_seed

from . import argument_types, config, lazy_modules, precision
from .device import device_of, placed


def model_of(cfg: DictConfig, dataset: Callable[[], Dataset], partition_id: int | None = None) -> nn.Module:
    """Return a fresh model on its device: the same initial parameters for the same seed.

    With ``partition_id``, the one that this node draws for itself.

    The data set is asked for only where the configuration leaves the shape or the classes to it, and the
    model takes them: what a model of text makes of pictures is told when it sees them. A value that
    somebody has set for the model stays. The data set is also asked for where modules are lazy, and learn
    their shapes from it.
    """
    measured: dict[str, object] = {}  # what the configuration leaves to the data
    takes = partial(argument_types.takes, str(cfg.model.get("_target_")))
    if cfg.dataset.shape is None and cfg.model.get("input_shape") is None and takes("input_shape"):
        measured["input_shape"] = dataset().input_shape
    if cfg.dataset.num_classes is None and cfg.model.get("num_classes") is None and takes("num_classes"):
        measured["num_classes"] = dataset().num_classes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_seed(cfg.seed, partition_id))
        with warnings.catch_warnings():  # of a model without classes, which is refused in one line
            warnings.filterwarnings("ignore", "Initializing zero-element tensors", UserWarning)
            warnings.filterwarnings("ignore", "Lazy modules are a new feature", UserWarning)
            model: nn.Module = config.build(cfg.model, **measured)
        if lazy_modules.has_lazy(model):
            lazy_modules.materialise(model, dataset())
    device = device_of(cfg.device)
    return precision.prepared(placed(model, device), device, cfg.autocast, cfg.channels_last)


def _seed(seed: int, partition_id: int | None) -> int:
    """Return what the initial parameters are drawn from: the server's model, or a node's own."""
    if partition_id is None:
        return torch_seed(seed, Purpose.INITIAL_MODEL)
    return torch_seed(seed, Purpose.NODE_MODEL, partition_id=partition_id)
