"""The second version of NPY's header has four bytes for its length."""

import io

import numpy as np
import pytest
from flwr.app import Array

from strategies.shared.arrays import view_values


@pytest.mark.parametrize("version", [(1, 0), (2, 0)], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_both_versions_are_read(version: tuple[int, int], order: str) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3).copy(order=order)  # type: ignore[call-overload]
    stream = io.BytesIO()
    np.lib.format.write_array(stream, values, version=version)
    actual = view_values(Array("float32", (2, 3), "numpy.ndarray", stream.getvalue()))
    assert actual.tolist() == values.tolist()


def test_a_long_header_is_read() -> None:
    """Its length takes two bytes; writers may fill it up with spaces."""
    values = np.arange(3, dtype=np.float32)
    plain = Array(values).data
    header = plain[10:].split(b"\n")[0] + b" " * 600 + b"\n"
    data = plain[:8] + len(header).to_bytes(2, "little") + header + values.tobytes()
    assert view_values(Array("float32", (3,), "numpy.ndarray", data)).tolist() == [0, 1, 2]
