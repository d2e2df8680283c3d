"""Blocks: long vectors a piece at a time.

The server step is bound by memory: several operations on a piece that stays in the cache cost one pass
over memory together, and no temporary is as long as the model. On an accelerator each operation costs a
launch instead, so pieces are long there.
"""

from collections.abc import Iterator

from torch import Tensor

SIZE = 1 << 16  # columns on a CPU; ten rows of float32 are 2.6 MB
MOST = 1 << 24  # numbers of a block elsewhere; 67 MB of float32, which counts exactly that far


def block_size(rows: Tensor) -> int:
    """Return how many columns of [P] or [K, P] make a block, where they lie."""
    if rows.device.type == "cpu":
        return SIZE
    return max(SIZE, MOST // (rows.shape[0] if rows.ndim > 1 else 1))


def blocks(rows: Tensor, columns: slice = slice(None)) -> Iterator[slice]:
    """Yield slices that cover these columns of [P] or [K, P]."""
    start, stop, _ = columns.indices(rows.shape[-1])
    size = block_size(rows)
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))
