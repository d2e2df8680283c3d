"""A data set from any torch ``Dataset``; this one computes its examples."""

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from baselines.datasets import Dataset, from_torch


class Readings(TorchDataset[tuple[Tensor, int]]):
    """Waves that begin anywhere; the label is how fast they are."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count = first, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        seed = self.first + row  # the same row each time
        draws = torch.Generator().manual_seed(seed)
        label = row % 4
        start = torch.rand(1, generator=draws)
        return torch.sin(
            (label + 1) * (torch.linspace(0, 6, 50) + 6 * start)
        ), label


def readings() -> Dataset:
    """Return them; memory holds a batch at a time."""
    return from_torch(Readings(0, 400), Readings(400, 100))
