"""Blocks: long vectors a piece at a time.

The server step is bound by memory: several operations on a piece that stays in the cache cost one pass
over memory together, and no temporary is as long as the model.
"""

from collections.abc import Iterator

SIZE = 1 << 16  # elements; ten rows of float32 are 2.6 MB


def blocks(stop: int, start: int = 0) -> Iterator[slice]:
    """Yield slices that cover start ... stop - 1."""
    for first in range(start, stop, SIZE):
        yield slice(first, min(first + SIZE, stop))
