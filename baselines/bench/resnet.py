"""resnet: ResNet-18 with GroupNorm on 32x32 pictures of noise; a step takes as long as on real ones."""

import torch

from baselines.datasets import Dataset
from clients import Classification as Task

NODES = 4
SIZE = 32


def setting(steps: int, size: int = SIZE, model: str = "resnet18_gn") -> str:
    """Return the overrides for four nodes that take so many steps of 32 pictures in a round."""
    return f"{pictures(3, size, NODES * 32 * steps, NODES)} model={model}"


def pictures(channels: int, size: int, examples: int, nodes: int) -> str:
    """Return the overrides for nodes that hold equally many pictures of noise."""
    load = f"{{_target_:{__name__}.noise,examples:{examples},size:{size},channels:{channels}}}"
    return (
        f"dataset=digits ~dataset.load '+dataset.load={load}' dataset.shape=[{channels},{size},{size}] "
        f"num_nodes={nodes} partitioner=iid"
    )


def noise(examples: int, size: int, channels: int = 3) -> Dataset:
    """Return pictures [examples, channels, size, size] of noise in ten classes."""
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(examples, channels, size, size, generator=draws)
    targets = torch.arange(examples) % 10
    return Dataset(inputs, targets, inputs[:10], targets[:10], Task())
