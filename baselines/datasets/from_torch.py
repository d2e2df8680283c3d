"""A data set made of ``torch.utils.data.Dataset``: read batch by batch, so it need not fit in memory."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from clients import Classification, LazyRows, Task
from clients.examples import Transform

from .dataset import Dataset


def from_torch(
    train: Any, test: Any, task: Task | None = None, transform: Transform | None = None
) -> Dataset:
    """Return a data set that reads its inputs from two map-style data sets of (input, target).

    Only the targets are held: of a data set with ``targets``, as those of torchvision and their subsets,
    these; else, and where a ``target_transform`` changes them, each item is read once. ``task`` is
    classification by default. Neither data set may change an item at random.
    """
    return Dataset(
        LazyRows(train),
        _targets(train),
        LazyRows(test),
        _targets(test),
        Classification() if task is None else task,
        transform,
    )


def _targets(source: Any) -> Tensor:
    whole: Any = source.dataset if isinstance(source, Subset) else source
    if hasattr(whole, "targets") and getattr(whole, "target_transform", None) is None:
        targets = torch.as_tensor(whole.targets)
        return targets[torch.as_tensor(source.indices)] if isinstance(source, Subset) else targets
    return torch.stack([torch.as_tensor(source[row][1]) for row in range(len(source))])
