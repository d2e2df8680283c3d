"""resnet: ResNet-18 with GroupNorm on 32x32 pictures of noise; a step takes as long as on real ones."""

import torch

from baselines.datasets import Dataset
from clients import Classification as Task

NODES = 4
SIZE = 32


def setting(steps: int, size: int = SIZE, model: str = "resnet18_gn") -> str:
    """Return the overrides for four nodes that take so many steps of 32 pictures in a round."""
    load = f"{{_target_:{__name__}.noise,examples:{NODES * 32 * steps},size:{size}}}"
    return (
        f"dataset=digits ~dataset.load '+dataset.load={load}' dataset.shape=[3,{size},{size}] "
        f"num_nodes={NODES} partitioner=iid model={model}"
    )


def noise(examples: int, size: int) -> Dataset:
    """Return pictures [examples, 3, size, size] of noise in ten classes."""
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(examples, 3, size, size, generator=draws)
    targets = torch.arange(examples) % 10
    return Dataset(inputs, targets, inputs[:10], targets[:10], Task())
