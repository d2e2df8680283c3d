"""Memory that is kept from round to round."""

import torch

from strategies.core.replies import Workspace


def test_the_same_memory_while_it_is_large_enough() -> None:
    memory = Workspace()
    first = memory.rows("deltas", 4, torch.empty(3, dtype=torch.float32))
    assert first.shape == (4, 3)
    for count in (4, 2, 4):
        again = memory.rows("deltas", count, torch.empty(3, dtype=torch.float32))
        assert again.shape == (count, 3)
        assert again.data_ptr() == first.data_ptr()


def test_other_memory_for_more_rows_other_columns_and_dtypes() -> None:
    memory = Workspace()
    for count, columns, dtype in (
        (2, 3, torch.float32),
        (3, 3, torch.float32),
        (3, 4, torch.float32),
        (3, 2, torch.float32),
        (3, 2, torch.float64),
    ):
        actual = memory.rows("deltas", count, torch.empty(columns, dtype=dtype))
        assert (actual.shape, actual.dtype) == ((count, columns), dtype)


def test_each_name_has_its_own() -> None:
    memory = Workspace()
    one, other = (memory.rows(name, 2, torch.empty(2, dtype=torch.float32)) for name in ("one", "other"))
    assert one.data_ptr() != other.data_ptr()
