"""Shifted labels beside the Weight Erosion report's figure 1 and its authors' code."""

import csv
from pathlib import Path

import numpy as np
import pytest

from baselines.errors import UserError
from baselines.partitioners import ShiftedLabels
from baselines.partitioners.shifted_labels import DISTRIBUTIONS

GOLDEN = Path(__file__).parents[2] / "golden"
MNIST = np.array([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
MNIST_TEST = np.array([980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009])
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), MNIST))
NODES = (10, 20, 50, 100)


def counts_of(letter: str, num_nodes: int, *, chunked: bool = False) -> np.ndarray:
    parts = ShiftedLabels(letter, None, chunked)(LABELS, None, num_nodes, 0)
    return np.stack([np.bincount(LABELS[rows], minlength=10) for rows in parts])


def test_distributions_are_the_figure_s() -> None:
    with open(GOLDEN / "weight_erosion_figure1.csv") as file:
        printed = {row.pop("distribution"): tuple(map(float, row.values())) for row in csv.DictReader(file)}
    assert printed == DISTRIBUTIONS


@pytest.mark.parametrize("letter", "ABCDEFG")
@pytest.mark.parametrize("num_nodes", NODES)
def test_sizes_are_equal_and_distributions_close(letter: str, num_nodes: int) -> None:
    counts = counts_of(letter, num_nodes)
    np.testing.assert_array_equal(counts.sum(0), MNIST)
    np.testing.assert_array_equal(counts.sum(1), 60_000 // num_nodes)
    for node, row in enumerate(counts):
        wanted = np.roll(DISTRIBUTIONS[letter], -node)
        assert not row[wanted == 0].any()
        # Digits are up to 12 % rarer or more frequent than the mean; no count differs by much more.
        assert np.abs(row / row.sum() - wanted).max() <= 0.067


@pytest.mark.parametrize("letter", "ABCDEFG")
def test_distributions_are_exact_where_digits_are_equally_frequent(letter: str) -> None:
    labels = np.repeat(np.arange(10), 2_000)
    parts = ShiftedLabels(letter, None, False)(labels, None, 20, 0)
    for node, rows in enumerate(parts):
        wanted = np.roll(DISTRIBUTIONS[letter], -node) * 1_000
        np.testing.assert_array_equal(np.bincount(labels[rows], minlength=10), wanted)


def test_modes_move_down_by_one_from_node_to_node() -> None:
    modes = counts_of("B", 20).argmax(1)
    np.testing.assert_array_equal(modes, [(5 - node) % 10 for node in range(20)])


@pytest.mark.parametrize(
    ("letter", "num_nodes", "total", "distinct"),
    [  # what the authors' code deals out of 60,000 rows, and how many of them at least once
        ("A", 10, 59_907, 59_907),
        ("A", 100, 59_907, 59_907),
        ("B", 50, 59_907, 59_907),
        ("C", 20, 62_608, 58_394),
        ("C", 100, 72_240, 48_762),
        ("G", 20, 66_220, 54_782),
        ("G", 50, 84_280, 54_782),
        ("G", 100, 114_380, 54_782),
    ],
)
def test_chunked_deals_the_rows_of_the_authors_code(
    letter: str, num_nodes: int, total: int, distinct: int
) -> None:
    parts = ShiftedLabels(letter, None, True)(LABELS, None, num_nodes, 0)
    assert sum(len(rows) for rows in parts) == total
    assert len(np.unique(np.concatenate(parts))) == distinct
    for rows in parts:
        assert (np.diff(rows) > 0).all()  # twice in the data of one node: never


def test_chunked_begins_after_whole_chunks_and_takes_begun_ones() -> None:
    """C with 20 nodes wants 12.5 chunks of a digit: a node takes 13, and the next begins after 12."""
    parts = ShiftedLabels("C", None, True)(LABELS, None, 20, 0)
    threes, size = np.flatnonzero(LABELS == 3), 6131 // 99
    for node, first in ((0, 0), (7, 12), (8, 24), (9, 36), (10, 48)):
        mine = parts[node][LABELS[parts[node]] == 3]
        np.testing.assert_array_equal(mine, threes[first * size : (first + 13) * size])
    assert not (LABELS[parts[1]] == 3).any()


def test_chunked_takes_digits_in_the_order_of_the_data() -> None:
    parts = ShiftedLabels("B", None, True)(LABELS, None, 10, 0)
    fives = np.flatnonzero(LABELS == 5)
    size = 5421 // 99
    np.testing.assert_array_equal(parts[0][LABELS[parts[0]] == 5], fives[: 60 * size])
    np.testing.assert_array_equal(parts[1][LABELS[parts[1]] == 5], fives[60 * size : 80 * size])


@pytest.mark.parametrize(
    ("letter", "size"),
    [("A", 996), ("B", 922), ("C", 1038), ("D", 1008), ("E", 946), ("F", 968), ("G", 977)],
)
def test_requester_s_test_set_has_the_size_that_the_stored_accuracies_show(letter: str, size: int) -> None:
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(10), MNIST_TEST))
    rows = ShiftedLabels(letter, 0, False).test_rows(labels)
    assert len(rows) == size
    for digit, fraction in enumerate(DISTRIBUTIONS[letter]):
        mine = rows[labels[rows] == digit]
        assert len(mine) == int(fraction * MNIST_TEST[digit] + 1e-9)
        np.testing.assert_array_equal(mine, np.flatnonzero(labels == digit)[: len(mine)])


def test_another_requester_has_another_test_set() -> None:
    labels = np.repeat(np.arange(10), 100)
    rows = ShiftedLabels("C", 2, False).test_rows(labels)
    np.testing.assert_array_equal(
        np.bincount(labels[rows], minlength=10), [25, 25, 0, 0, 0, 0, 0, 0, 25, 25]
    )


def test_without_a_requester_models_are_judged_on_everything() -> None:
    np.testing.assert_array_equal(ShiftedLabels("C", None, False).test_rows(LABELS), np.arange(60_000))


@pytest.mark.parametrize("chunked", [False, True])
def test_pairs_share_no_label(chunked: bool) -> None:
    """Section IV.D: "agent_0 gets digits [0,1], agent_1 gets digits [2,3], etc."."""
    labels = LABELS if chunked else np.repeat(np.arange(10), 100)
    for num_nodes in (5, 10):
        parts = ShiftedLabels("pairs", None, chunked)(labels, None, num_nodes, 0)
        assert [set(labels[rows]) for rows in parts] == [
            {2 * node % 10, 2 * node % 10 + 1} for node in range(num_nodes)
        ]
        dealt = np.concatenate(parts)
        assert len(np.unique(dealt)) == len(dealt) == (59_907 if chunked else 1_000)


@pytest.mark.parametrize("node", [0, 3, 8])
def test_a_requester_of_pairs_is_judged_on_its_two_digits(node: int) -> None:
    labels = np.repeat(np.arange(10), 100)
    rows = ShiftedLabels("pairs", node, True).test_rows(labels)
    expected = np.zeros(10, dtype=int)
    expected[2 * (node % 5) :][:2] = 50
    np.testing.assert_array_equal(np.bincount(labels[rows], minlength=10), expected)


@pytest.mark.parametrize("letter", ["B", "pairs"])
def test_labels_that_allow_no_equal_sizes_are_refused(letter: str) -> None:
    labels = np.repeat(np.arange(10), [5_000, *[100] * 9])
    with pytest.raises(UserError, match="too unevenly distributed"):
        ShiftedLabels(letter, None, False)(labels, None, 10, 0)


def test_each_judges_a_node_s_own_model_on_its_own_distribution_and_others_on_everything() -> None:
    labels = np.repeat(np.arange(10), 100)
    each = ShiftedLabels("C", "each", False)
    np.testing.assert_array_equal(each.test_rows(labels), np.arange(1000))
    for node in (0, 2, 13):
        own = each.own_test_rows(labels, node)
        np.testing.assert_array_equal(own, ShiftedLabels("C", node, False).test_rows(labels))
    for fixed in (0, None):
        one = ShiftedLabels("C", fixed, False)
        np.testing.assert_array_equal(one.own_test_rows(labels, 2), one.test_rows(labels))
