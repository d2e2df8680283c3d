"""Memory that is kept from round to round and written over: fresh pages cost more than the arithmetic."""

import torch
from torch import Tensor


class Memory:
    """Matrices by name, each with the most rows that were asked for."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def rows(self, name: str, count: int, columns: int, dtype: torch.dtype) -> Tensor:
        """Return a matrix [count, columns] that holds anything, until the next one of this name."""
        kept = self._kept.pop(name, None)
        if kept is None or kept.shape[0] < count or kept.shape[1] != columns or kept.dtype != dtype:
            del kept  # before there is another
            kept = torch.empty(count, columns, dtype=dtype)
        self._kept[name] = kept
        return kept[:count]
