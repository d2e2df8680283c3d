"""Weights computed by hand."""

import pytest
import torch
from numpy import zeros

from helpers.federation import record
from strategies import ByExamples, InverseVariance, Uniform, Updates, Weighting
from strategies.parts.layout import Layout
from strategies.shared import protocol


def weights(weighting: Weighting, *variances: float, examples: tuple[float, ...] = ()) -> list[float]:
    nodes = len(variances or examples)
    updates = Updates(
        deltas=torch.zeros(nodes, 2),
        buffers=torch.zeros(nodes, 0),
        num_examples=torch.tensor(examples or [1.0] * nodes, dtype=torch.float64),
        partition_ids=tuple(range(nodes)),
        layout=Layout.of(record({"w": zeros(2)})),
        start=torch.zeros(2),
        metrics={protocol.GRADIENT_VARIANCE: torch.tensor(variances, dtype=torch.float64)},
    )
    actual, state = weighting(updates, {})
    assert state == {}
    return actual.tolist()


def test_uniform_and_by_examples() -> None:
    assert weights(Uniform(), examples=(1, 2, 5)) == pytest.approx([1 / 3] * 3, rel=1e-15)
    assert weights(ByExamples(), examples=(1, 2, 5)) == pytest.approx([1 / 8, 2 / 8, 5 / 8], rel=1e-15)


def test_precision_weights() -> None:
    """(1/v_k) / sum (1/v): 4, 2 and 1 shares; variances below 1, too."""
    assert weights(InverseVariance(), 0.5, 1, 2) == pytest.approx([4 / 7, 2 / 7, 1 / 7], rel=1e-15)


def test_a_variance_of_zero_counts_as_the_median_of_the_others() -> None:
    """Known: 2, 4, 8, of which the median is 4; shares 2 (unknown), 4, 2, 1."""
    actual = weights(InverseVariance(), 0, 2, 4, 8)
    assert actual == pytest.approx([2 / 9, 4 / 9, 2 / 9, 1 / 9], rel=1e-15)


def test_a_single_known_variance_is_everyones() -> None:
    assert weights(InverseVariance(), 0, 3, 0) == pytest.approx([1 / 3] * 3, rel=1e-15)
    assert weights(InverseVariance(), 0, 0) == [0.5, 0.5]


def test_a_tiny_variance_counts_as_a_millionth_of_a_millionth_of_the_largest() -> None:
    """Else a node whose steps happen to agree would be the only one that counts."""
    actual = weights(InverseVariance(), 1e-30, 4)
    assert actual[1] / actual[0] == pytest.approx(1e-12, rel=1e-9, abs=0)
    assert weights(InverseVariance(), 1e-320, 1e-320) == [0.5, 0.5]  # 1 / v is infinite
