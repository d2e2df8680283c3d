"""Contenders that take turns, and the medians and ratios of what they measured."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

Measured = TypeVar("Measured")
Contenders = dict[str, Callable[[], float]]  # {name: a measurement}
Samples = dict[str, list[float]]  # {contender: a measurement per turn}


@dataclass(frozen=True)
class Spread:
    """The median of several measurements, the least and the greatest of them."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of one or more measurements."""
        return cls(median(values), min(values), max(values), len(values))


def alternate(contenders: Mapping[str, Callable[[], Measured]], repeats: int) -> dict[str, list[Measured]]:
    """Let each contender measure once, in turn, ``repeats`` times; return {name: measurements}."""
    found: dict[str, list[Measured]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, measure in contenders.items():
            found[name].append(measure())
    return found


def round_seconds(one_round: Callable[[], object], rounds: int) -> float:
    """Return the seconds of a round: the median of all but the first."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        one_round()
        seconds.append(time.perf_counter() - started)
    return median(seconds[1:])


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the spread of the ratios, turn by turn: each turn's two sides were measured together."""
    return Spread.of([mine / other for mine, other in zip(ours, theirs, strict=True)])
