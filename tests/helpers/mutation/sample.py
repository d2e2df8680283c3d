"""Which changes are tried: every folder gets its share of any count."""

import random
from collections.abc import Sequence

from helpers.checkout import ROOT

FOLDERS = ("strategies", "clients")


def files() -> list[str]:
    """Return the files that are mutated, as paths from the root."""
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    return [path.relative_to(ROOT).as_posix() for path in paths]


def dealt(sizes: Sequence[int], seed: int) -> list[tuple[int, int]]:
    """Return each item of groups of these sizes, as (group, item), in an order that the seed gives.

    Any beginning of it has each group's share, to one item.
    """
    generator = random.Random(seed)
    places = []
    for group, size in enumerate(sizes):
        start = generator.random()
        items = generator.sample(range(size), size)
        places += [((start + k) / size, group, item) for k, item in enumerate(items)]
    return [(group, item) for _, group, item in sorted(places)]
