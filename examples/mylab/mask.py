"""A mask: which coordinates may move?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from strategies import Mask


@dataclass(frozen=True)
class Loud(Mask):
    """m_j = 1 where any node's |Delta_k,j| is above ``least``, else 0."""

    least: float = 1e-4

    @property
    def is_identity(self) -> bool:
        return self.least == 0

    def mask_values(self, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
        torch.amax(torch.abs(deltas, out=scratch), 0, out=out)
        out.gt_(self.least)
