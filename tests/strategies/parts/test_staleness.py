"""Staleness: the values of each factor by hand, and what none of them may do."""

import pytest
import torch

from strategies import ConstantStaleness, HingeStaleness, PolynomialStaleness, Staleness

TAU = torch.tensor([0, 1, 3, 5, 8], dtype=torch.float64)
BY_HAND = [
    (ConstantStaleness(), [1, 1, 1, 1, 1]),
    (PolynomialStaleness(a=0.5), [1, 0.5**0.5, 0.5, 6**-0.5, 1 / 3]),
    (PolynomialStaleness(a=1), [1, 1 / 2, 1 / 4, 1 / 6, 1 / 9]),
    (PolynomialStaleness(a=0), [1, 1, 1, 1, 1]),
    (HingeStaleness(a=10, b=4), [1, 1, 1, 1 / 11, 1 / 41]),
    (HingeStaleness(a=0.5, b=0), [1, 1 / 1.5, 1 / 2.5, 1 / 3.5, 1 / 5]),
    (HingeStaleness(a=0, b=2), [1, 1, 1, 1, 1]),
]


@pytest.mark.parametrize(("staleness", "expected"), BY_HAND, ids=lambda one: repr(one)[:30])
def test_values_by_hand(staleness: Staleness, expected: list[float]) -> None:
    factors = staleness(TAU)
    torch.testing.assert_close(factors, torch.tensor(expected, dtype=torch.float64), rtol=1e-15, atol=0)
    assert factors.dtype == torch.float64
    assert bool((factors.diff() <= 0).all())


def test_stale_updates_never_count_for_more() -> None:
    with pytest.raises(ValueError, match=r"staleness\.a=-1 is out of range: expected 0 or above"):
        PolynomialStaleness(a=-1)
    for values in ({"a": -0.5}, {"b": -1.0}, {"a": float("nan")}, {"b": float("inf")}):
        with pytest.raises(ValueError, match=r"staleness\.[ab]="):
            HingeStaleness(**values)
