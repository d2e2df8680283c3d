"""Held arrays: values that stay a tensor, on the device where it lies, until somebody asks for bytes.

Server and nodes of one process pass them on as they are; whatever saves, sends or reads a Flower ``Array``
gets its bytes, the same as of any other.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from .arrays import pack, view


class Held(Array):
    """A Flower Array of a tensor.

    Parameters
    ----------
    tensor : nobody may change it any more
    """

    def __init__(self, tensor: Tensor) -> None:
        own = vars(self)  # Flower's own __init__ would ask for the bytes
        own["tensor"] = tensor
        own["dtype"], own["shape"], own["stype"] = _name(tensor.dtype), tuple(tensor.shape), "numpy.ndarray"

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The values in NumPy's format, made anew each time."""
        return self.plain().data

    def plain(self) -> Array:
        """Return a Flower Array of the values."""
        return pack(vars(self)["tensor"].cpu().numpy())

    def deflate(self) -> bytes:
        """Return what travels: an Array, since receivers know no other."""
        return self.plain().deflate()

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Any, ...]]:
        """Travel as an Array to another process, and into a copy."""
        return Array, _parts(self)

    def __eq__(self, other: object) -> bool:
        """Say whether another array, held or not, has the same bytes."""
        return isinstance(other, Array) and _parts(self) == _parts(other)

    __hash__ = None  # type: ignore[assignment]


def _parts(array: Array) -> tuple[str, tuple[int, ...], str, bytes]:
    return array.dtype, tuple(array.shape), array.stype, array.data


def values_of(array: Array) -> Tensor:
    """Return the array's values as a tensor where they lie, to be read only."""
    if isinstance(array, Held):
        tensor: Tensor = vars(array)["tensor"]
        return tensor
    return torch.from_numpy(view(array).copy())  # torch wants memory that it may write to


def sent(array: Array) -> np.ndarray | None:
    """Return a held array's values as they can be sent, on the CPU without a copy; None of any other."""
    if not isinstance(array, Held):
        return None
    return np.asarray(vars(array)["tensor"].cpu().numpy(), order="C")


def received(values: np.ndarray) -> Held:
    """Return a held array of values in memory that nobody may write to, as what has come."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return Held(torch.from_numpy(values))


def copied(arrays: ArrayRecord) -> ArrayRecord:
    """Return the record with copies of what it holds; bytes stay, as nobody can change them."""
    found = ArrayRecord()
    for name, array in arrays.items():
        found[name] = Held(vars(array)["tensor"].clone()) if isinstance(array, Held) else array
    return found


def size_of(arrays: ArrayRecord) -> int:
    """Return how many bytes the record holds as tensors."""
    return sum(vars(array)["tensor"].nbytes for array in arrays.values() if isinstance(array, Held))


def device_of(arrays: ArrayRecord) -> torch.device:
    """Return where a record's values lie; host memory for bytes."""
    first = next(iter(arrays.values()), None)
    return vars(first)["tensor"].device if isinstance(first, Held) else torch.device("cpu")


def record(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Return a record that holds these tensors, which nobody may change any more."""
    found = ArrayRecord()  # made from a dictionary it would ask for the bytes
    for name, tensor in tensors.items():
        found[name] = Held(tensor)
    return found


def moved(arrays: ArrayRecord, device: torch.device) -> ArrayRecord:
    """Return the record with its values on a device."""
    return record({name: values_of(array).to(device) for name, array in arrays.items()})


@lru_cache(maxsize=32)
def _name(dtype: torch.dtype) -> str:
    return str(np.dtype(torch.empty(0, dtype=dtype).numpy().dtype))
