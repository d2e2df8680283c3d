"""Blocks: long vectors a piece at a time.

The server step is bound by memory: several operations on a piece that stays in the cache cost one pass
over memory together, and no temporary is as long as the model.
"""

from collections.abc import Iterator

SIZE = 1 << 16  # elements; ten rows of float32 are 2.6 MB


def blocks(length: int) -> Iterator[slice]:
    """Yield slices that cover 0 ... length - 1."""
    for start in range(0, length, SIZE):
        yield slice(start, min(start + SIZE, length))
