"""A data set made of ``torch.utils.data.Dataset``: read batch by batch, so it need not fit in memory."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from baselines.errors import UserError
from clients import Classification, LazyRows, Task
from clients.examples import Inputs, Transform

from .dataset import Dataset

NUM_ROWS_CHECKED = 16  # rows


def from_torch(
    train: Any, test: Any, task: Task | None = None, transform: Transform | None = None
) -> Dataset:
    """Return a data set that reads its inputs from two map-style data sets of (input, target).

    An input is a tensor or numbers; several are a dict, or a tuple of tensors of one dimension or more.

    Only the targets are kept in memory. They are taken from the data set's ``targets``, as torchvision's
    sets have; without those, or if the items' targets differ, each item is read once. ``task`` is
    classification by default. Neither data set may change an item at random.

    Raises
    ------
    UserError : for a data set without items, or with items of another form
    """
    train_rows, test_rows = _rows("train", train), _rows("test", test)
    return Dataset(*train_rows, *test_rows, Classification() if task is None else task, transform)


def _rows(part: str, source: Any) -> tuple[Inputs, Tensor]:
    """Return a part's inputs and targets."""
    expected = "expected (input, target), each a tensor or numbers"
    if not len(source):
        raise UserError(f"the {part} data set has no items: {expected}")
    item = source[0]
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise UserError(f"item 0 of the {part} data set is a {type(item).__name__}: {expected}")
    try:
        inputs = _lazy_rows(source, item[0])
    except (TypeError, ValueError, RuntimeError) as error:  # torch's, for what is not an array
        kind = type(item[0]).__name__
        raise UserError(f"the input of item 0 of the {part} data set is a {kind}: {expected}") from error
    try:
        return inputs, _targets(source)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"the targets of the {part} data set cannot be read ({error}): {expected}"
        ) from error


def _lazy_rows(source: Any, first: Any) -> Inputs:
    if isinstance(first, Mapping):
        return {name: LazyRows(source, name) for name in first}
    if isinstance(first, tuple) and first and all(isinstance(x, Tensor) and x.ndim for x in first):
        return tuple(LazyRows(source, place) for place in range(len(first)))
    return LazyRows(source)


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
    """Return row numbers spread over the data set, on which ``targets`` are compared with the items'."""
    places = (round(place * (count - 1) / (NUM_ROWS_CHECKED - 1)) for place in range(NUM_ROWS_CHECKED))
    return sorted({place for place in places if place >= 0})
