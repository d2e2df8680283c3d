"""A data set made of ``torch.utils.data.Dataset``: read batch by batch, so it need not fit in memory."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from clients import Classification, LazyRows, Task
from clients.examples import Transform

from .dataset import Dataset

LOOKED_AT = 16  # rows


def from_torch(
    train: Any, test: Any, task: Task | None = None, transform: Transform | None = None
) -> Dataset:
    """Return a data set that reads its inputs from two map-style data sets of (input, target).

    Only the targets are held: of a data set with ``targets``, as those of torchvision and their subsets,
    these; else, and where a ``target_transform`` or the items themselves have others, each item is read
    once. ``task`` is classification by default. Neither data set may change an item at random.
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
        targets = targets[torch.as_tensor(source.indices)] if isinstance(source, Subset) else targets
        if len(targets) == len(source) and all(_is(source, row, targets) for row in _some(len(source))):
            return targets
    return torch.stack([torch.as_tensor(source[row][1]) for row in range(len(source))])


def _is(source: Any, row: int, targets: Tensor) -> bool:
    return torch.equal(torch.as_tensor(source[row][1]).to(targets.dtype), targets[row])


def _some(count: int) -> list[int]:
    """Return rows from all over: where items have targets of their own, these show it."""
    places = (round(place * (count - 1) / (LOOKED_AT - 1)) for place in range(LOOKED_AT))
    return sorted({place for place in places if place >= 0})
