"""Flower arrays: read without a copy, written with one."""

import hashlib
import io
import warnings
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message
from torch import Tensor


def view_values(array: Array) -> np.ndarray:
    """Return the array's values as a read-only view of its bytes.

    ``Array.numpy()`` copies the data and parses the NPY header, which costs more than the arithmetic on
    a small array; here each distinct header is parsed once.
    """
    data = array.data
    size = int.from_bytes(data[8:10] if data[6] == 1 else data[8:12], "little")
    start = (10 if data[6] == 1 else 12) + size
    shape, fortran_order, dtype = _parse_header(data[:start])
    values = np.frombuffer(data, dtype, offset=start)
    return values.reshape(shape, order="F" if fortran_order else "C")


def pack_array(values: np.ndarray) -> Array:
    """Return ``Array(values)``, for values in C order byte for byte, at the cost of one copy.

    ``numpy.save``, which Flower uses, writes the header anew and the values by way of a buffer.
    """
    values = np.asarray(values, order="C")
    data = b"".join((_make_header(values.shape, values.dtype), values.reshape(-1).view(np.uint8).data))
    return Array(str(values.dtype), values.shape, "numpy.ndarray", data)


@lru_cache(maxsize=4096)
def _make_header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    stream, descr = io.BytesIO(), np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


@lru_cache(maxsize=4096)
def _parse_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Parse an NPY header (NumPy enhancement proposal 1)."""
    stream = io.BytesIO(header)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran_order, dtype = read(stream)
    except Exception as error:  # numpy parses the text as Python's, which raises what it likes
        raise ValueError(f"not an NPY header: {error}") from error
    if dtype.hasobject:
        raise ValueError("the array holds Python objects, expected numbers")
    return shape, fortran_order, dtype


def count_message_bytes(message: Message) -> int:
    """Return how many bytes of arrays and metrics a message carries, as sent; a failure has none."""
    if not message.has_content():
        return 0
    kinds = (message.content.array_records, message.content.metric_records)
    return sum(record.count_bytes() for records in kinds for record in records.values())


# TensorArray: values that stay a tensor, on the device where it lies, until somebody asks for bytes.
#
# Server and nodes of one process pass them on as they are; whatever saves, sends or reads a Flower
# ``Array`` gets its bytes, the same as of any other.


class TensorArray(Array):
    """A Flower Array of a tensor.

    Parameters
    ----------
    tensor : not to be changed any more
    """

    def __init__(self, tensor: Tensor) -> None:
        own = vars(self)  # Flower's own __init__ would ask for the bytes
        own["tensor"] = tensor
        own["dtype"], own["shape"], own["stype"] = _name(tensor.dtype), tuple(tensor.shape), "numpy.ndarray"

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The values in NumPy's format, made anew each time."""
        return self.to_array().data

    def to_array(self) -> Array:
        """Return a Flower Array of the values."""
        return pack_array(vars(self)["tensor"].cpu().numpy())

    def deflate(self) -> bytes:
        """Return what travels: an Array, since receivers know no other."""
        return self.to_array().deflate()

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Any, ...]]:
        """Travel as an Array to another process, and into a copy."""
        return Array, _parts(self)

    def __eq__(self, other: object) -> bool:
        """Say whether another array, of this class or not, has the same bytes."""
        return isinstance(other, Array) and _parts(self) == _parts(other)

    __hash__ = None  # type: ignore[assignment]


def _parts(array: Array) -> tuple[str, tuple[int, ...], str, bytes]:
    return array.dtype, tuple(array.shape), array.stype, array.data


def values_of(array: Array) -> Tensor:
    """Return the array's values as a tensor where they lie, to be read only."""
    if isinstance(array, TensorArray):
        tensor: Tensor = vars(array)["tensor"]
        return tensor
    return torch.from_numpy(view_values(array).copy())  # torch wants memory that it may write to


def sendable_values(array: Array) -> np.ndarray | None:
    """Return a TensorArray's values as they can be sent, on the CPU without a copy; None for any other."""
    if not isinstance(array, TensorArray):
        return None
    return np.asarray(vars(array)["tensor"].cpu().numpy(), order="C")


def receive_values(values: np.ndarray) -> TensorArray:
    """Return received values, in memory that nobody may write to, as a TensorArray."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return TensorArray(torch.from_numpy(values))


def copy_record(arrays: ArrayRecord) -> ArrayRecord:
    """Return the record with copies of what it holds; bytes stay, as nobody can change them."""
    copy = ArrayRecord()
    for name, array in arrays.items():
        copy[name] = TensorArray(vars(array)["tensor"].clone()) if isinstance(array, TensorArray) else array
    return copy


def record_size(arrays: ArrayRecord) -> int:
    """Return how many bytes the record holds as tensors."""
    return sum(vars(array)["tensor"].nbytes for array in arrays.values() if isinstance(array, TensorArray))


def record_device(arrays: ArrayRecord) -> torch.device:
    """Return where a record's values lie; host memory for bytes."""
    first = next(iter(arrays.values()), None)
    return vars(first)["tensor"].device if isinstance(first, TensorArray) else torch.device("cpu")


def to_array_record(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Return a record that holds these tensors, which nobody may change any more."""
    record = ArrayRecord()  # made from a dictionary it would ask for the bytes
    for name, tensor in tensors.items():
        record[name] = TensorArray(tensor)
    return record


def record_like(sent: ArrayRecord, values: Mapping[str, Tensor]) -> ArrayRecord:
    """Return a record with these values, and 0 for every other array of ``sent``."""
    rest = {name: torch.zeros_like(values_of(array)) for name, array in sent.items() if name not in values}
    return to_array_record({**values, **rest})


def move_record(arrays: ArrayRecord, device: torch.device) -> ArrayRecord:
    """Return the record with its values on a device."""
    return to_array_record({name: values_of(array).to(device) for name, array in arrays.items()})


@lru_cache(maxsize=32)
def _name(dtype: torch.dtype) -> str:
    return str(np.dtype(torch.empty(0, dtype=dtype).numpy().dtype))


# Float64, which not every accelerator has.


def to_float64(values: Tensor) -> Tensor:
    """Return the values in float64, in host memory where their device has no float64, as Apple's."""
    try:
        return values.double()
    except (TypeError, RuntimeError):  # of mps, and of xpu
        return values.cpu().double()


# Frozen parameters: nobody trains them, so they travel to each node once and are known by a hash.
#
# A message that names the hash leaves out what the node has: the values of its own model, or those that an
# earlier message brought. A reply that names the hash says that the node has them.


HASH_DIGITS = 32  # of the hash, hexadecimal


def hash_values(arrays: Mapping[str, Array]) -> str:
    """Return a hash of names, shapes, dtypes and values, in whatever order and memory these lie."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = values_of(arrays[name]).detach().cpu().contiguous().numpy()
        digest.update(repr((name, str(values.dtype), values.shape)).encode())
        digest.update(values.reshape(-1).view("uint8").data)
    return digest.hexdigest()[:HASH_DIGITS]


def remove_arrays(arrays: ArrayRecord, names: Collection[str]) -> ArrayRecord:
    """Return the record without the arrays of these names."""
    rest = ArrayRecord()  # made from a dictionary it would ask for the bytes
    for name, array in arrays.items():
        if name not in names:
            rest[name] = array
    return rest


def has_same_values(one: Array, other: Array) -> bool:
    """Say whether two arrays have the same dtype, shape and values, wherever they lie."""
    if one is other:
        return True
    if (one.dtype, tuple(one.shape)) != (other.dtype, tuple(other.shape)):
        return False
    values, others = values_of(one), values_of(other)
    return values.dtype == others.dtype and torch.equal(values.to(others.device), others)


# SharedMean: what several replies carry in place of a model each, where a grid has added them up.


class SharedMean(ArrayRecord):
    """The weighted mean of the models of some of a round's nodes; the reply of each of them carries it.

    Parameters
    ----------
    record : its values
    sums : what else was added up over the nodes, by name (:mod:`strategies.parts.updates`)
    """

    def __init__(self, record: ArrayRecord, sums: Mapping[str, Tensor] = MappingProxyType({})) -> None:
        super().__init__()  # which would make bytes of what is held
        for name, array in record.items():
            self[name] = array
        self.sums = dict(sums)
