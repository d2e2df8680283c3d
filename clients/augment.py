"""Augmentation: random changes of a batch in training, on the training device."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from strategies.shared.checks import require

Augmentation = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Augment:
    """Random crop, horizontal flip and cutout; each image of a batch has its own draws.

    It changes images [n, C, H, W] after their normalisation. What lies outside the image, and the hole,
    is 0 there: the data set's mean colour (torchvision's usual order pads raw images with black).

    Parameters
    ----------
    padding : pixels around the image, before a window of its size is cut out at random; 0: none
    flip : mirror left and right with probability one half
    cutout : side of the square hole in pixels, its centre anywhere in the image, so that it may stick
        out (DeVries and Taylor 2017); 0: none
    """

    padding: int = 0
    flip: bool = False
    cutout: int = 0

    def __post_init__(self) -> None:
        """Refuse negative sizes."""
        require(self.padding >= 0, "augment.padding", self.padding, "0 or above")
        require(self.cutout >= 0, "augment.cutout", self.cutout, "0 or above")

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Return a changed copy; ``generator`` lives on the CPU, so that every device draws alike."""
        if self.padding or self.flip:
            inputs = self._shift_and_flip(inputs, generator)
        return self._cut_out(inputs, generator) if self.cutout else inputs

    def _shift_and_flip(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        n, channels, height, width = inputs.shape
        offset = torch.randint(2 * self.padding + 1, (2, n, 1), generator=generator)
        rows, columns = offset[0] + torch.arange(height), offset[1] + torch.arange(width)
        if self.flip:
            mirrored = torch.randint(2, (n, 1), generator=generator, dtype=torch.bool)
            columns = torch.where(mirrored, columns.flip(1), columns)
        places = rows[:, :, None] * (width + 2 * self.padding) + columns[:, None, :]
        places = places.view(n, 1, -1).expand(-1, channels, -1).to(inputs.device)
        return pad(inputs, [self.padding] * 4).flatten(2).gather(2, places).view(inputs.shape)

    def _cut_out(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        n, _, height, width = inputs.shape
        start = torch.stack([torch.randint(size, (n, 1), generator=generator) for size in (height, width)])
        start -= self.cutout // 2
        row, column = torch.arange(height) - start[0], torch.arange(width) - start[1]
        in_rows = (row >= 0) & (row < self.cutout)
        in_columns = (column >= 0) & (column < self.cutout)
        hole = in_rows[:, None, :, None] & in_columns[:, None, None, :]
        return inputs.masked_fill(hole.to(inputs.device), 0)
