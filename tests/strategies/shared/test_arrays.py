"""Arrays: the bytes are Flower's own."""

import numpy as np
import pytest
from flwr.app import Array

from strategies.shared.arrays import pack_array, view_values

VALUES = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "float64": np.linspace(-1, 1, 7),
    "whole numbers": np.arange(5),
    "truth": np.array([True, False]),
    "half": np.arange(3, dtype=np.float16),
    "one number": np.array(3.5),
    "empty": np.empty((0, 4), np.float32),
    "big-endian": np.arange(3, dtype=">f4"),
    "every other": np.arange(10, dtype=np.float32)[::2],
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_packed_is_what_flower_writes(values: np.ndarray) -> None:
    ours, flowers = pack_array(values), Array(values)
    assert (ours.dtype, ours.shape, ours.stype) == (flowers.dtype, flowers.shape, flowers.stype)
    assert ours.data == flowers.data
    np.testing.assert_array_equal(view_values(ours), values)


def test_columns_first_becomes_rows_first() -> None:
    values = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(pack_array(values).numpy(), values)
    np.testing.assert_array_equal(view_values(Array(values)), values)


def test_the_bytes_are_a_copy() -> None:
    values = np.zeros(3)
    packed = pack_array(values)
    values[:] = 1
    assert not view_values(packed).any()
