"""Layout: the place of each array of a model in one flat vector.

The parts work on flat vectors; clients send named arrays. The layout translates, in the order
of the model's ``state_dict``, and keeps *parameters* (optimised) apart from *buffers* (carried along:
integer arrays and running statistics). Frozen arrays lie in neither: they stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from strategies.shared import arrays
from strategies.shared.arrays import (
    TensorArray,
    has_same_values,
    hash_values,
    record_device,
    to_array_record,
    values_of,
)

BUFFER_NAMES = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class Layer:
    """One named array.

    Parameters
    ----------
    name : its key in the model's ``state_dict``
    shape : its shape
    dtype : its NumPy dtype, by name
    is_buffer : whether it is a buffer; then ``columns`` counts among the buffers
    columns : where it lies in the flat vector of parameters (or of buffers)
    is_count : whether it is a parameter that nodes send as whole numbers, and whose mean need not be one
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_buffer: bool
    columns: slice
    is_count: bool = False

    @cached_property
    def is_floating(self) -> bool:
        """Whether it holds floating-point numbers."""
        return bool(np.issubdtype(np.dtype(self.dtype), np.floating))

    @cached_property
    def torch_dtype(self) -> torch.dtype:
        """Its dtype, as torch names it."""
        return torch.from_numpy(np.empty(0, self.dtype)).dtype


@dataclass(frozen=True)
class Layout:
    """The layers of a model in ``state_dict`` order.

    Parameters
    ----------
    layers : those that the nodes change
    frozen : the arrays that nobody changes, by name
    names : of all arrays in ``state_dict`` order, where some are frozen
    """

    layers: tuple[Layer, ...]
    frozen: Mapping[str, Array] = field(default_factory=dict, compare=False)
    names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        record: ArrayRecord,
        buffer_names: Sequence[str] = BUFFER_NAMES,
        frozen_names: Sequence[str] = (),
    ) -> Layout:
        """Read the layout of ``record``.

        An array is frozen when it has one of ``frozen_names``. It is a buffer when its dtype is not floating
        point, or its name is one of ``buffer_names``, or ends in one that is no array's whole name. In a
        record of whole numbers alone, as counts are, these are the parameters, in float64.
        """
        if isinstance(buffer_names, str):  # whose letters would be names
            raise ValueError(f"buffer_names={buffer_names!r}: expected a tuple, ({buffer_names!r},)")
        ends_of_names = tuple(name for name in buffer_names if name not in record)
        counts = not any(np.issubdtype(np.dtype(array.dtype), np.floating) for array in record.values())
        layers: list[Layer] = []
        ends = {False: 0, True: 0}
        chosen = set(frozen_names)
        frozen = {name: array for name, array in record.items() if name in chosen}
        for name, array in record.items():
            if name in frozen:
                continue
            named = name in buffer_names or name.endswith(ends_of_names)
            is_count = counts and not named and np.issubdtype(np.dtype(array.dtype), np.integer)
            dtype = "float64" if is_count else array.dtype
            buffer = named or not np.issubdtype(np.dtype(dtype), np.floating)
            start = ends[buffer]
            ends[buffer] = start + int(np.prod(array.shape, dtype=np.int64))
            columns = slice(start, ends[buffer])
            layers.append(Layer(name, tuple(array.shape), dtype, buffer, columns, is_count))
        if ends[False] == 0:
            advice = ": choose another model, or let one learn" if frozen else ""
            raise ValueError(f"the model has no parameter to train{advice}")
        return cls(tuple(layers), frozen, tuple(record) if frozen else ())

    @cached_property
    def parameters(self) -> tuple[Layer, ...]:
        """The layers that are optimised."""
        return tuple(layer for layer in self.layers if not layer.is_buffer)

    @cached_property
    def buffers(self) -> tuple[Layer, ...]:
        """The layers that are carried along."""
        return tuple(layer for layer in self.layers if layer.is_buffer)

    @cached_property
    def frozen_hash(self) -> str:
        """The hash of the frozen arrays."""
        return hash_values(self.frozen)

    @cached_property
    def num_parameters(self) -> int:
        """P, the length of the flat parameter vector."""
        return int(self.parameters[-1].columns.stop)

    @cached_property
    def num_buffers(self) -> int:
        """B, the length of the flat buffer vector."""
        return int(self.buffers[-1].columns.stop) if self.buffers else 0

    @cached_property
    def dtype(self) -> torch.dtype:
        """The dtype of the flat parameter vector: wide enough for every parameter, and float32 at least."""
        widest = np.result_type(np.float32, *(np.dtype(layer.dtype) for layer in self.parameters))
        return torch.from_numpy(np.empty(0, widest)).dtype

    def flatten_parameters(self, record: ArrayRecord, out: Tensor | None = None) -> Tensor:
        """Return the record's parameters [P] in :attr:`dtype`, in ``out`` if given."""
        if out is None:
            out = torch.empty(self.num_parameters, dtype=self.dtype, device=record_device(record))
        return _flatten(record, self.parameters, out)

    def flatten_buffers(self, record: ArrayRecord, out: Tensor | None = None) -> Tensor:
        """Return the record's buffers [B] in float64, in ``out`` if given."""
        if out is None:
            out = torch.empty(self.num_buffers, dtype=torch.float64)
        return _flatten(record, self.buffers, out)

    def find_overflow(self, buffers: Tensor) -> str | None:
        """Name an array whose dtype cannot hold its part of the ``buffers`` [B]; None where all can."""
        low, high = self._limits
        wrong = (buffers < low) | (buffers > high)
        if not bool(wrong.any()):
            return None
        place = int(wrong.nonzero()[0])
        layer = next(layer for layer in self.buffers if place < layer.columns.stop)
        return f"{layer.name!r} beyond {layer.dtype}"

    @cached_property
    def _limits(self) -> tuple[Tensor, Tensor]:
        """The least and the largest number that each of the buffers [B] can hold."""
        low, high = torch.empty(2, self.num_buffers, dtype=torch.float64)
        for layer in self.buffers:
            low[layer.columns], high[layer.columns] = _range_of(np.dtype(layer.dtype))
        return low, high

    def record(self, parameters: Tensor, buffers: Tensor | None) -> ArrayRecord:
        """Return named arrays in their own shapes and dtypes: the model's, with what is frozen.

        Where ``buffers`` are None, those of the parameters alone.
        """
        named: dict[str, Tensor] = {}
        for layer in self.parameters if buffers is None else self.layers:
            source = buffers if layer.is_buffer and buffers is not None else parameters
            values = source[layer.columns]
            if not layer.is_floating:
                values = values.round()
            named[layer.name] = values.to(layer.torch_dtype, copy=True).view(layer.shape)
        return to_array_record(named) if buffers is None else self._with_frozen(to_array_record(named))

    def _with_frozen(self, changed: ArrayRecord) -> ArrayRecord:
        """Return a record with the frozen arrays in their places."""
        if not self.frozen:
            return changed
        whole = ArrayRecord()
        for name in self.names:
            whole[name] = self.frozen[name] if name in self.frozen else changed[name]
        return whole

    def mismatch(self, record: ArrayRecord, *, parameters_only: bool = False) -> str | None:
        """Say in words how ``record`` differs from this layout; None when it fits."""
        layers = self.parameters if parameters_only else self.layers
        expected = {layer.name: layer for layer in layers}
        if missing := [name for name in expected if name not in record]:
            return f"lacks {', '.join(map(repr, missing[:3]))} of the model's arrays"
        if extra := [name for name in record if name not in expected and name not in self.frozen]:
            return f"has {', '.join(map(repr, extra[:3]))}, which the model does not have"
        for name, array in record.items():
            if name in self.frozen:  # a node of another ClientApp sends everything
                if not has_same_values(array, self.frozen[name]):
                    return f"changed {name!r}, which is frozen: leave it out of frozen_names"
            elif tuple(array.shape) != expected[name].shape:
                return f"{name!r} has shape {tuple(array.shape)}, the model's {expected[name].shape}"
        return None


def _range_of(dtype: np.dtype) -> tuple[float, float]:
    if dtype.kind == "b":
        return 0.0, 1.0
    info = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    slack = 1 - 2**-40 if dtype.kind != "f" and dtype.itemsize == 8 else 1  # float64 would round beyond
    return float(info.min) * slack, float(info.max) * slack


@np.errstate(over="ignore", invalid="ignore")  # what is too large becomes infinite, and is refused later
def _flatten(record: ArrayRecord, layers: Sequence[Layer], out: Tensor) -> Tensor:
    values = out.numpy() if out.device.type == "cpu" else None
    for layer in layers:
        array = record[layer.name]
        if values is None or isinstance(array, TensorArray):
            _copy(values_of(array), layer, out[layer.columns])
            continue
        view = arrays.view_values(array)  # numpy copies a small array in half the time of torch
        _require(layer, view.dtype, view.shape)
        values[layer.columns] = view.reshape(-1)
    return out


def _copy(values: Tensor, layer: Layer, out: Tensor) -> None:
    if values.dtype != layer.torch_dtype or values.shape != layer.shape:
        _require(layer, np.dtype(str(values.dtype).removeprefix("torch.")), values.shape)
    out.copy_(values.reshape(-1))


def _require(layer: Layer, dtype: np.dtype, shape: Sequence[int]) -> None:
    if dtype.kind not in (
        "biuf" if layer.is_buffer else "iuf" if layer.is_count else "f"
    ):  # would be cast silently
        raise ValueError(f"{layer.name!r} holds {dtype}, the model's {layer.dtype}")
    if tuple(shape) != layer.shape:  # whatever the message claims
        raise ValueError(f"{layer.name!r} holds shape {tuple(shape)}, the model's {layer.shape}")


# Norms of long vectors: a float32 sum of many squares loses digits, a sum of pieces' sums loses fewer.
#
# torch adds the squares of a float32 vector in float32. The norm of 11 million entries of one size comes out
# wrong by 4e-3 of it, that of normally distributed ones by 4e-4; in pieces of 2 million by 2e-4 and 3e-5. The few
# numbers that are left are added in host memory: not every accelerator has float64.


CHUNK_ELEMENTS = 1 << 21  # elements


def squared_norms(rows: Tensor) -> Tensor:
    """Return ||row||^2 of each row, or of a single vector, in float64 in host memory."""
    pieces = [
        torch.linalg.vector_norm(piece, dim=-1) for piece in torch.split(rows, CHUNK_ELEMENTS, dim=-1)
    ]
    return torch.stack(pieces).cpu().double().square().sum(0)


def layer_norms(vector: Tensor, layout: Layout) -> Tensor:
    """Return ||vector_l|| of each parameter array l of the layout, [L] in float64 in host memory."""
    return torch.stack([squared_norms(vector[layer.columns]) for layer in layout.parameters]).sqrt()


def squared_distances(rows: Tensor, point: Tensor) -> Tensor:
    """Return ||row - point||^2 of each row, in float64 in host memory, without a copy of them all."""
    pieces = torch.split(point, CHUNK_ELEMENTS)
    distances = [
        torch.dist(a, b)
        for row in rows
        for a, b in zip(torch.split(row, CHUNK_ELEMENTS), pieces, strict=True)
    ]
    return torch.stack(distances).cpu().view(len(rows), -1).double().square().sum(1)


# Blocks: long vectors a piece at a time.
#
# The server step is bound by memory: several operations on a piece that stays in the cache cost one pass
# over memory together, and no temporary is as long as the model. On an accelerator each operation costs a
# launch instead, so pieces are long there.


CPU_BLOCK_COLUMNS = 1 << 16  # columns on a CPU; ten rows of float32 are 2.6 MB
MAX_BLOCK_NUMBERS = 1 << 24  # numbers of a block elsewhere; 67 MB of float32, which counts exactly that far


def block_size(rows: Tensor) -> int:
    """Return how many columns of [P] or [K, P] make a block, where they lie."""
    if rows.device.type == "cpu":
        return CPU_BLOCK_COLUMNS
    return max(CPU_BLOCK_COLUMNS, MAX_BLOCK_NUMBERS // (rows.shape[0] if rows.ndim > 1 else 1))


def blocks(rows: Tensor, columns: slice = slice(None)) -> Iterator[slice]:
    """Yield slices that cover these columns of [P] or [K, P]."""
    start, stop, _ = columns.indices(rows.shape[-1])
    size = block_size(rows)
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))
