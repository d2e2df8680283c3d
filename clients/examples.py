"""Examples: one node's data, as rows of tensors that all nodes of a process share."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from strategies.shared.checks import require

from .augment import Augmentation

logger = logging.getLogger("flwr.clients")


class LazyRows:
    """The inputs of a ``torch.utils.data.Dataset``, in place of a tensor [N, ...].

    Nothing is kept: a row is read each time that it is used. So a row must not change between reads; random
    augmentation belongs in :class:`~clients.Examples`.

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


# A batch's inputs are a tensor, or a tuple or a dict of tensors that have a row for each example. A
# tuple's tensors are the model's positional arguments, those of a dict its keywords.


Inputs = Any  # a Tensor or LazyRows, or a tuple or a Mapping of them


def apply_to_each(function: Callable[[Any], Any], inputs: Inputs) -> Any:
    """Return the results of a function on a tensor, or on each of several."""
    if isinstance(inputs, Mapping):
        return {name: function(part) for name, part in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(function(part) for part in inputs)
    return function(inputs)


def tensors_of(inputs: Inputs) -> list[Any]:
    """Return the tensors, one or several."""
    if isinstance(inputs, Mapping):
        return list(inputs.values())
    return list(inputs) if isinstance(inputs, tuple) else [inputs]


def has_several_inputs(inputs: Inputs) -> bool:
    """Say whether inputs are several tensors."""
    return isinstance(inputs, tuple | Mapping)


def count_rows(inputs: Inputs) -> int:
    """Return how many examples there are."""
    return len(tensors_of(inputs)[0])


def arguments_of(inputs: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return a model's positional arguments and keywords."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def compute_outputs(model: nn.Module, inputs: Inputs) -> Any:
    """Return a model's outputs for a batch."""
    if not has_several_inputs(inputs):
        return model(inputs)
    arguments, named = arguments_of(inputs)
    return model(*arguments, **named)


# A data set that fits lies on the accelerator, moved there once per process: batches are selected
# there, and only the order of an epoch goes there. The batches are the same either way.


_copies: dict[torch.device, WeakTensorKeyDictionary] = {}


def make_resident(values: Tensor, device: torch.device, share: float) -> Tensor:
    """Return ``values`` on ``device`` where they take at most ``share`` of its free memory.

    Otherwise as they are, in host memory. What the first call of a process decides holds for all of them.
    """
    if device.type == "cpu":
        return values
    copies = _copies.setdefault(device, WeakTensorKeyDictionary())  # type: ignore[no-untyped-call]
    if values not in copies:
        copies[values] = _copy_to_device(values, device, share)
    copy = copies[values]
    return values if copy is None else copy


def _copy_to_device(values: Tensor, device: torch.device, share: float) -> Tensor | None:
    if values.nbytes <= share * get_memory(device)[0]:
        return values.to(device)
    logger.warning(
        "%.1f GB of examples are more than device_memory_share=%g of what is free on %s: they stay in host "
        "memory, and batches go to the device one by one",
        values.nbytes / 1e9,
        share,
        device,
    )
    return None


def get_memory(device: torch.device) -> tuple[int, int]:
    """Return how many bytes of an accelerator are free, and how many it has.

    0 on the CPU, and for a kind that does not say.
    """
    module = None if device.type == "cpu" else torch.get_device_module(device)
    if memory_info := getattr(module, "mem_get_info", None):
        free, total = memory_info(device)
        return int(free), int(total)
    if most := getattr(module, "recommended_max_memory", None):  # Apple's, which is the machine's own
        total = int(most())
        return max(0, total - int(module.driver_allocated_memory())), total  # type: ignore[union-attr]
    return 0, 0


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
        """Refuse standard deviations of 0 or below."""
        require(all(one > 0 for one in self.std), "std", list(self.std), "numbers above 0")

    def __call__(self, inputs: Tensor) -> Tensor:
        """Normalise a batch."""
        kind = torch.float64 if inputs.dtype == torch.float64 else torch.float32  # timestamps need it
        factor, offset = _make_constants(
            tuple(self.mean), tuple(self.std), self.scale, inputs.ndim, inputs.device, kind
        )
        return inputs.to(kind).mul_(factor).sub_(offset).to(torch.float32)


@lru_cache(maxsize=64)
def _make_constants(
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
        be several (:mod:`clients.examples`), which the transform then takes together
    index : which rows are this node's
    transform : applied to inputs on the training device, any number at once; an example's result must
        depend on that example alone
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

    def count_labels(self, num_classes: int) -> Tensor:
        """Return how many examples have each label, [num_classes]; targets are labels."""
        return torch.bincount(self.targets[self.index.to(self.targets.device)], minlength=num_classes)

    def batch(
        self, positions: Tensor | slice, device: torch.device, draws: torch.Generator | None = None
    ) -> tuple[Inputs, Tensor]:
        """Return inputs and targets at ``positions`` (0 ... len - 1) on ``device``.

        With a generator ``draws`` the inputs are augmented; without one, as in evaluation, they are not.
        """
        rows = make_resident(self.index, self.place(device), math.inf)[positions]
        inputs, targets = self.rows(rows, device)
        if self.augment and draws:
            inputs = self.augment(inputs, draws)
        return inputs, targets

    def rows(self, rows: Tensor, device: torch.device) -> tuple[Inputs, Tensor]:
        """Return the transformed inputs and the targets of these rows of the whole data set."""
        inputs, targets = self.select_raw(rows, device)
        return self.apply_transform(inputs), targets

    def select_raw(self, rows: Tensor, device: torch.device) -> tuple[Inputs, Tensor]:
        """Return the inputs, not transformed, and the targets of these rows of the whole data set."""

        def select(values: Tensor | LazyRows) -> Tensor:
            near = self._near(device, values)
            return near.index_select(0, rows.to(near.device)).to(device)  # near[rows] copies byte by byte

        return apply_to_each(select, self.inputs), select(self.targets)

    def apply_transform(self, inputs: Inputs) -> Inputs:
        """Return inputs transformed."""
        return self.transform(inputs) if self.transform else inputs

    def place(self, device: torch.device) -> torch.device:
        """Return where batches for ``device`` are selected: on it, or in host memory."""
        return self._near(device, tensors_of(self.inputs)[0]).device

    def _near(self, device: torch.device, values: Tensor | LazyRows) -> Tensor | LazyRows:
        return make_resident(values, device, self.memory_share) if isinstance(values, Tensor) else values
