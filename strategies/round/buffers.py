"""Who owns which memory: what is written over, round by round, as fresh pages cost more than arithmetic."""

import torch
from torch import Tensor


class Buffers:
    """Scratch space of a strategy that outlives a round.

    Parameters
    ----------
    keeps_parameters : whether somebody needs the old parameters after the round, too

    Attributes
    ----------
    pair : two vectors [P] of no more use, for the next round's mean and factors; None without a mask
    free : a vector [P] of no more use in this round, for the next parameters; None where there is none
    """

    def __init__(self, *, keeps_parameters: bool = False) -> None:
        self.keeps_parameters = keeps_parameters
        self.pair: tuple[Tensor, Tensor] | None = None
        self.free: Tensor | None = None
        self._kept: dict[str, Tensor] = {}

    def rows(self, name: str, count: int, columns: int, dtype: torch.dtype) -> Tensor:
        """Return a matrix [count, columns] that holds anything, until the next one of this name."""
        kept = self._kept.pop(name, None)
        if kept is None or kept.shape[0] < count or kept.shape[1] != columns or kept.dtype != dtype:
            del kept  # before there is another
            kept = torch.empty(count, columns, dtype=dtype)
        self._kept[name] = kept
        return kept[:count]

    def moved(self, parameters: Tensor, direction: Tensor, factors: Tensor | None, eta: float) -> Tensor:
        """Return ``parameters - eta * factors * direction``, written over what is free."""
        out, self.free = self.free, None
        if factors is None:
            return torch.sub(parameters, direction, alpha=eta, out=out)
        self.pair = None if self.keeps_parameters else (parameters, factors)
        return torch.addcmul(parameters, factors, direction, value=-eta, out=out)
