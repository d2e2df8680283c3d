"""Rows that are read when a batch needs them: for data that does not fit in memory."""

from typing import Any

import torch
from torch import Tensor


class LazyRows:
    """The inputs of a ``torch.utils.data.Dataset``, in the place of a tensor [N, ...].

    Nothing is kept: a row is read each time that it is used. So what a row is must not change; random
    augmentation belongs into :class:`~clients.Examples`.

    Parameters
    ----------
    source : a map-style data set whose items are (input tensor, target); all inputs have one shape
    part : which of an input's tensors, where it is a tuple or a dict of them; each is read by itself
    """

    def __init__(self, source: Any, part: int | str | None = None) -> None:
        self.source, self.part = source, part
        first = self._read(0)
        self.shape = torch.Size((len(source), *first.shape))
        self.dtype = first.dtype
        self.device = torch.device("cpu")  # rows are read into host memory

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, row: int) -> Tensor:
        """Return one row."""
        return self._read(row)

    def _read(self, row: int) -> Tensor:
        value = self.source[row][0]
        return torch.as_tensor(value if self.part is None else value[self.part])

    def index_select(self, _: int, rows: Tensor) -> Tensor:
        """Return the ``rows``, stacked, as ``Tensor.index_select`` does along dimension 0."""
        if len(rows) == 0:
            return torch.empty(0, *self.shape[1:], dtype=self.dtype)
        return torch.stack([self[row] for row in rows.tolist()])
