"""How far rounds may lie from those of the plain loop, and the comparison itself.

README.md promises equal bits one by one, and 1e-5 where nodes are batched: here of each array's largest
number. That alone would not tell a small step from none, so nothing may be further off than a thousandth of
the way that the array has gone, either. Where a way needs more, its test says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from helpers.agreement.plain import Round


@dataclass(frozen=True)
class Tolerance:
    """How far rounds may be off.

    Each number of an array by a share of the array's largest, and of the furthest that one has gone;
    ``whole`` takes the norm of all arrays in one vector in place of either. Losses and accuracies may be
    off by ``of_metrics`` of them: losses are added up in another order in any case.
    """

    of_values: float
    of_movement: float
    of_metrics: float = 1e-6
    whole: bool = False


TO_THE_BIT = Tolerance(0.0, 0.0)
ROUNDING = Tolerance(1e-5, 1e-3, of_metrics=1e-5)


@dataclass(frozen=True)
class Taken:
    """Rounds as they were taken; ``batched`` tells whether all of them were."""

    start: dict[str, torch.Tensor]
    rounds: list[Round]
    batched: bool = False


def hold(actual: Taken, expected: list[Round], tolerance: Tolerance) -> None:
    """Hold rounds beside those of the plain loop, array by array, and what is printed of them."""
    assert len(actual.rounds) == len(expected)
    for t, (one, other) in enumerate(zip(actual.rounds, expected, strict=True), start=1):
        assert one.state.keys() == other.state.keys()
        triples = {n: (one.state[n], value.cpu(), actual.start[n]) for n, value in other.state.items()}
        if tolerance.whole:
            _hold(f"round {t}", *map(_vector, zip(*triples.values(), strict=True)), tolerance)
        else:
            for name, triple in triples.items():
                _hold(f"round {t}: {name}", *triple, tolerance)
        assert one.metrics.keys() == other.metrics.keys()
        for name, number in other.metrics.items():
            expects = pytest.approx(number, rel=tolerance.of_metrics)
            assert one.metrics[name] == expects, f"round {t}: {name}"


def moved(rounds: list[Round], start: dict[str, torch.Tensor]) -> bool:
    """Say whether anything has changed."""
    return any(not torch.equal(start[name], value.cpu()) for name, value in rounds[-1].state.items())


def _hold(
    place: str, actual: torch.Tensor, expected: torch.Tensor, start: torch.Tensor, tolerance: Tolerance
) -> None:
    assert actual.dtype == expected.dtype, place
    actual, expected, start = (each.double() for each in (actual, expected, start))
    length = torch.linalg.vector_norm if tolerance.whole else lambda each: each.abs().max()
    off, far = length(actual - expected), length(expected - start)
    assert off <= tolerance.of_values * length(expected), f"{place}: {off:.3g} off"
    assert off <= tolerance.of_movement * far, f"{place}: {off:.3g} off after a way of {far:.3g}"


def _vector(arrays: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([array.flatten() for array in arrays])
