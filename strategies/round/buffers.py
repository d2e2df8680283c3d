"""Who owns which memory: what is written over, round by round, as fresh pages cost more than arithmetic."""

import torch
from torch import Tensor

from strategies.parts.mask import Factors


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

    def rows(self, name: str, count: int, like: Tensor) -> Tensor:
        """Return a matrix [count, P] that holds anything, until the next one of this name.

        ``like`` is a vector [P] of its dtype, and on its device.
        """
        kept, wanted = self._kept.pop(name, None), (len(like), like.dtype, like.device)
        if kept is None or len(kept) < count or (kept.shape[1], kept.dtype, kept.device) != wanted:
            del kept  # before there is another
            kept = like.new_empty(count, len(like))
        self._kept[name] = kept
        return kept[:count]

    def moved(self, parameters: Tensor, direction: Tensor, factors: Factors | None, eta: float) -> Tensor:
        """Return ``parameters - eta * factors * direction``, written over what is free."""
        out, self.free = self.free, None
        if factors is None:
            return torch.sub(parameters, direction, alpha=eta, out=out)
        self.pair = None if self.keeps_parameters else (parameters, factors.values)
        return torch.addcmul(parameters, factors.values, direction, value=-eta, out=out)
