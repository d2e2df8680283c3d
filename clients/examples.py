"""Examples: one node's data, as rows of tensors that all nodes of a process share."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from strategies.shared.checks import require

from .augment import Augmentation
from .fast.resident import resident
from .inputs import Inputs, apply_to_each, tensors_of
from .lazy import LazyRows

Transform = Callable[[Inputs], Inputs]


@dataclass(frozen=True)
class Normalize:
    """Turn raw inputs [n, C, ...] into (x / scale - mean) / std, channel by channel, as float32.

    Parameters
    ----------
    mean, std : one number per channel, of inputs divided by ``scale``
    scale : 255 for 8-bit images
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 255.0

    def __post_init__(self) -> None:
        """Refuse deviations that are none."""
        require(all(one > 0 for one in self.std), "std", list(self.std), "numbers above 0")

    def __call__(self, inputs: Tensor) -> Tensor:
        """Normalise a batch."""
        kind = torch.float64 if inputs.dtype == torch.float64 else torch.float32  # 1.6e9 s needs it
        factor, offset = _constants(
            tuple(self.mean), tuple(self.std), self.scale, inputs.ndim, inputs.device, kind
        )
        return inputs.to(kind).mul_(factor).sub_(offset).to(torch.float32)


@lru_cache(maxsize=64)
def _constants(
    means: tuple[float, ...],
    stds: tuple[float, ...],
    scale: float,
    ndim: int,
    device: torch.device,
    kind: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Return 1 / (scale std) and mean / std, shaped for inputs of ``ndim`` dimensions, made once."""
    shape = (1, -1) + (1,) * (ndim - 2)
    mean = torch.tensor(means, device=device, dtype=kind).view(shape)
    std = torch.tensor(stds, device=device, dtype=kind).view(shape)
    return 1 / (scale * std), mean / std


@dataclass(frozen=True)
class Examples:
    """The rows ``index`` of a data set, transformed batch by batch.

    Parameters
    ----------
    inputs, targets : the whole data set [N, ...], shared and never copied; inputs may be read lazily, and
        be several (:mod:`clients.inputs`), which the transform then takes together
    index : which rows are this node's
    transform : applied to inputs on the training device, to as many as are at hand; what it makes of an
        example depends on that example alone
    augment : changes transformed batches at random, where training asks for it
    memory_share : of an accelerator's free memory that inputs, and targets, may each take to lie there
    """

    inputs: Inputs
    targets: Tensor
    index: Tensor
    transform: Transform | None = None
    augment: Augmentation | None = None
    memory_share: float = 0.5

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.index)

    def batch(
        self, positions: Tensor | slice, device: torch.device, draws: torch.Generator | None = None
    ) -> tuple[Inputs, Tensor]:
        """Return inputs and targets at ``positions`` (0 ... len - 1) on ``device``.

        With a generator ``draws`` the inputs are augmented; without, they are as in a test.
        """
        rows = resident(self.index, self.place(device), math.inf)[positions]
        inputs, targets = self.rows(rows, device)
        if self.augment and draws:
            inputs = self.augment(inputs, draws)
        return inputs, targets

    def rows(self, rows: Tensor, device: torch.device) -> tuple[Inputs, Tensor]:
        """Return the transformed inputs and the targets of these rows of the whole data set."""
        inputs, targets = self.raw(rows, device)
        return self.seen(inputs), targets

    def raw(self, rows: Tensor, device: torch.device) -> tuple[Inputs, Tensor]:
        """Return the inputs, as the data set has them, and the targets of these rows of all of it."""

        def select(values: Tensor | LazyRows) -> Tensor:
            near = self._near(device, values)
            return near.index_select(0, rows.to(near.device)).to(device)  # near[rows] copies byte by byte

        return apply_to_each(select, self.inputs), select(self.targets)

    def seen(self, inputs: Inputs) -> Inputs:
        """Return inputs transformed."""
        return self.transform(inputs) if self.transform else inputs

    def place(self, device: torch.device) -> torch.device:
        """Return where batches for ``device`` are selected: on it, or in host memory."""
        return self._near(device, tensors_of(self.inputs)[0]).device

    def _near(self, device: torch.device, values: Tensor | LazyRows) -> Tensor | LazyRows:
        return resident(values, device, self.memory_share) if isinstance(values, Tensor) else values
