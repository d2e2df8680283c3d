"""Dominant labels beside table 4.3 of the thesis on gradient masking."""

import numpy as np
import pytest

from baselines.errors import UserError
from baselines.partitioners import DominantLabels
from baselines.partitioners.dominant_labels import _deal_labels

MNIST = np.array([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
LABELS = np.repeat(np.arange(10), MNIST)


def counts_of(partitioner: DominantLabels, labels: np.ndarray, num_nodes: int, seed: int = 0) -> np.ndarray:
    parts = partitioner(labels, None, num_nodes, seed)
    return np.stack([np.bincount(labels[rows], minlength=10) for rows in parts])


@pytest.mark.parametrize("num_nodes", [5, 10, 20, 33, 100])
@pytest.mark.parametrize("share", [0.9, 0.7, 1.0])
def test_two_labels_have_their_share_of_every_node(num_nodes: int, share: float) -> None:
    counts = counts_of(DominantLabels(2, share), LABELS, num_nodes)
    top = np.sort(counts, axis=1)[:, -2:].sum(1)
    size = counts.sum(1)
    assert np.abs(top - share * size).max() <= 9  # each of ten counts is rounded
    np.testing.assert_array_equal(counts.sum(0), MNIST)


def test_noise_is_even_and_dominant_labels_are_shared_evenly() -> None:
    counts = counts_of(DominantLabels(2, 0.9), LABELS, 20)
    order = np.sort(counts, axis=1)
    assert (order[:, -3] - order[:, 0]).max() <= 2
    dominant = counts > 4 * order[:, -3:-2]
    np.testing.assert_array_equal(dominant.sum(1), 2)
    np.testing.assert_array_equal(dominant.sum(0), 4)  # 20 nodes x 2 labels / 10 labels
    for label in range(10):
        mine = counts[dominant[:, label], label]
        assert mine.max() - mine.min() <= 1


def test_is_the_skew_of_the_printed_table(skewed_counts: np.ndarray) -> None:
    printed = np.sort(skewed_counts, axis=1)
    share = printed[:, -2:].sum(1) / printed.sum(1)
    noise = printed[:, :-2] / printed[:, -2:].sum(1, keepdims=True)
    assert np.abs(share - 0.93).max() < 0.01
    ours = np.sort(counts_of(DominantLabels(2, 0.93), LABELS, 10), axis=1)
    # One per cent of the dominant count for each other label, in the table as in ours.
    our_noise = ours[:, :-2] / ours[:, -2:].sum(1, keepdims=True)
    assert np.abs(noise - 0.0094).max() < 0.0025
    assert np.abs(our_noise - 0.0094).max() < 0.0005


def test_nodes_that_draw_their_labels_differ_in_size(skewed_counts: np.ndarray) -> None:
    for seed in range(5):
        counts = counts_of(DominantLabels(2, 0.93, even=False), LABELS, 10, seed)
        np.testing.assert_array_equal(counts.sum(0), MNIST)
        top, size = np.sort(counts, axis=1)[:, -2:].sum(1), counts.sum(1)
        assert np.abs(top - 0.93 * size).max() <= 9
        holders = (counts > 0.1 * size[:, None]).sum(0)
        assert holders.min() >= 1
        assert holders.max() >= 3  # as the printed table's label 1
    even = counts_of(DominantLabels(2, 0.93), LABELS, 10).sum(1)
    printed = np.ptp(skewed_counts.sum(1))
    assert np.ptp(even) < printed < np.ptp(size)


def test_some_label_is_always_left_over() -> None:
    assert len(DominantLabels(1, 1.0)(np.arange(10), None, 10, 0)) == 10
    with pytest.raises(UserError, match=r"some label is always left over: .*partitioner.even=true"):
        DominantLabels(2, 0.9, even=False)(np.arange(40) % 20, None, 10, 0)


def test_labels_are_dealt_evenly_without_repetition() -> None:
    for num_labels, num_nodes, per_node in ((10, 10, 2), (10, 7, 3), (7, 5, 3), (3, 4, 2), (4, 3, 4)):
        for seed in range(20):
            dealt = _deal_labels(num_labels, num_nodes, per_node, np.random.default_rng(seed))
            np.testing.assert_array_equal(dealt.sum(1), per_node)
            assert np.ptp(dealt.sum(0)) <= 1


def test_pairs_vary() -> None:
    dealt = _deal_labels(10, 10, 2, np.random.default_rng(0))
    assert len({tuple(np.flatnonzero(row)) for row in dealt}) > 5


def test_labels_need_not_be_numbered_from_zero() -> None:
    labels = LABELS + 3
    parts = DominantLabels(2, 0.9)(labels, None, 10, 0)
    again = DominantLabels(2, 0.9)(LABELS, None, 10, 0)
    for a, b in zip(parts, again, strict=True):
        np.testing.assert_array_equal(a, b)
