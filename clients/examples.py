"""Examples: one node's data, as rows of tensors that all nodes of a process share."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .augment import Augmentation

Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Normalize:
    """Turn raw inputs [n, C, ...] into (x / scale - mean) / std, channel by channel, in float32.

    Parameters
    ----------
    mean, std : one number per channel, of inputs divided by ``scale``
    scale : 255 for 8-bit images
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 255.0

    def __call__(self, inputs: Tensor) -> Tensor:
        """Normalise a batch."""
        shape = (1, -1) + (1,) * (inputs.ndim - 2)
        mean = torch.tensor(self.mean, device=inputs.device).view(shape)
        std = torch.tensor(self.std, device=inputs.device).view(shape)
        factor = 1 / (self.scale * std)
        return inputs.to(torch.float32).mul_(factor).sub_(mean / std)


@dataclass(frozen=True)
class Examples:
    """The rows ``index`` of a data set, transformed batch by batch.

    Parameters
    ----------
    inputs, targets : the whole data set [N, ...], shared and never copied
    index : which rows are this node's
    transform : applied to each batch of inputs, on the training device
    augment : changes transformed batches at random, where training asks for it
    """

    inputs: Tensor
    targets: Tensor
    index: Tensor
    transform: Transform | None = None
    augment: Augmentation | None = None

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.index)

    def batch(
        self, positions: Tensor | slice, device: torch.device, draws: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return inputs and targets at ``positions`` (0 ... len - 1) on ``device``.

        With a generator ``draws`` the inputs are augmented; without, they are as in a test.
        """
        rows = self.index[positions]
        inputs, targets = self.rows(rows, device)
        if self.augment and draws:
            inputs = self.augment(inputs, draws)
        return inputs, targets

    def rows(self, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the transformed inputs and the targets of these rows of the whole data set."""
        inputs, targets = (
            values.index_select(0, rows).to(device)  # values[rows] copies images byte by byte
            for values in (self.inputs, self.targets)
        )
        return (self.transform(inputs) if self.transform else inputs), targets
