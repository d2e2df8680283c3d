"""Flower arrays: read without a copy, written with one."""

import io
from functools import lru_cache

import numpy as np
from flwr.app import Array


def view(array: Array) -> np.ndarray:
    """Return the array's values as a read-only view of its bytes.

    ``Array.numpy()`` copies the data and parses the NPY header, which costs more than the arithmetic on
    a small array; here each distinct header is parsed once.
    """
    data = array.data
    size = int.from_bytes(data[8:10] if data[6] == 1 else data[8:12], "little")
    start = (10 if data[6] == 1 else 12) + size
    shape, fortran_order, dtype = _header(data[:start])
    values = np.frombuffer(data, dtype, offset=start)
    return values.reshape(shape, order="F" if fortran_order else "C")


def pack(values: np.ndarray) -> Array:
    """Return ``Array(values)``, for values in C order byte for byte, at the cost of one copy.

    ``numpy.save``, which Flower uses, writes the header anew and the values by way of a buffer.
    """
    values = np.asarray(values, order="C")
    data = b"".join((_header_of(values.shape, values.dtype), values.reshape(-1).view(np.uint8).data))
    return Array(str(values.dtype), values.shape, "numpy.ndarray", data)


@lru_cache(maxsize=4096)
def _header_of(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    stream, descr = io.BytesIO(), np.lib.format.dtype_to_descr(dtype)
    told = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, told)
    return stream.getvalue()


@lru_cache(maxsize=4096)
def _header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
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
