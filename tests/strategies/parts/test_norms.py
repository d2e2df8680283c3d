"""Norms of long vectors against sums in double precision."""

import pytest
import torch

from strategies.parts.layout import CHUNK_ELEMENTS, squared_distances, squared_norms


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 1000, CHUNK_ELEMENTS, CHUNK_ELEMENTS + 1, 3 * CHUNK_ELEMENTS])
def test_are_what_double_precision_gives(size: int, dtype: torch.dtype) -> None:
    rows = torch.randn(2, size, generator=torch.Generator().manual_seed(0)).to(dtype)
    exact = rows.double().square().sum(1)
    relative = 1e-4 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(squared_norms(rows), exact, rtol=relative, atol=0)
    torch.testing.assert_close(squared_norms(rows[1]), exact[1], rtol=relative, atol=0)
    apart = (rows[0].double() - rows[1].double()).square().sum()
    actual = squared_distances(rows, rows[1])
    torch.testing.assert_close(actual, torch.stack([apart, 0 * apart]), rtol=relative, atol=0)


def test_keep_their_digits_where_all_entries_are_alike() -> None:
    """As the updates of sign-like optimisers are: one float32 sum is eight in a thousand off here."""
    row = torch.full((1, 12 * CHUNK_ELEMENTS), 0.0123)
    exact = float(row[0, 0]) ** 2 * row.numel()
    assert float(squared_norms(row)) == pytest.approx(exact, rel=1e-3)
