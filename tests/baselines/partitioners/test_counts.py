import numpy as np
import pytest

from baselines.errors import UserError
from baselines.partitioners.partitioner import apportion, equal_sizes, fill, fit, list_rows


def test_fit_meets_both_margins_with_whole_numbers_next_to_the_fitted_ones() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        pattern = rng.random((30, 7)) * (rng.random((30, 7)) < 0.7) + np.eye(30, 7) * 0.1 + 0.01
        totals = rng.integers(200, 400, 7)
        sizes = equal_sizes(int(totals.sum()), 30)
        counts = fit(pattern, sizes, totals)
        np.testing.assert_array_equal(counts.sum(1), sizes)
        np.testing.assert_array_equal(counts.sum(0), totals)
        assert counts.min() >= 0


def test_fit_keeps_a_table_that_fits_already() -> None:
    table = np.array([[3, 0, 7], [1, 9, 0]])
    np.testing.assert_array_equal(fit(table, table.sum(1), table.sum(0)), table)


def test_fit_keeps_zeros_and_is_nearest_by_hand() -> None:
    # One free number: x = counts[0, 0]; the odds ratio of the pattern is kept: x^2 / (10 - x)^2 = 4.
    counts = fit(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([10, 10]), np.array([10, 10]))
    np.testing.assert_array_equal(counts, [[7, 3], [3, 7]])  # x = 20/3


def test_fit_refuses_the_impossible() -> None:
    with pytest.raises(UserError, match="too unevenly"):
        fit(np.eye(2), np.array([5, 5]), np.array([4, 6]))


def test_apportion_keeps_the_sum_and_is_off_by_less_than_one() -> None:
    quotas = np.random.default_rng(0).random((50, 3))
    quotas *= 17 / quotas.sum(0)
    counts = apportion(quotas)
    np.testing.assert_array_equal(counts.sum(0), 17)
    assert np.abs(counts - quotas).max() < 1


def test_fill_draws_the_counted_rows() -> None:
    labels = np.array([0, 1, 0, 1, 1, 0, 0])
    counts = np.array([[1, 2], [3, 1]])
    first, second = fill(labels, counts, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(labels[first]), [1, 2])
    np.testing.assert_array_equal(np.sort(np.concatenate([first, second])), np.arange(7))


def test_rows_of_keeps_empty_nodes() -> None:
    parts = list_rows(np.array([2, 0, 2]), 4)
    assert [rows.tolist() for rows in parts] == [[1], [], [0, 2], []]
