"""Label groups beside table 3.1 of the thesis on selective federated averaging."""

import numpy as np
import pytest

from baselines.errors import UserError
from baselines.partitioners import LabelGroups

MNIST = np.array([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
LABELS = np.repeat(np.arange(10), MNIST)
GROUPS = [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]


def counts_of(balanced: float, num_nodes: int) -> np.ndarray:
    parts = LabelGroups(balanced, GROUPS)(LABELS, None, num_nodes, 0)
    return np.stack([np.bincount(LABELS[rows], minlength=10) for rows in parts])


@pytest.mark.parametrize("per_group", [1, 3, 10])
def test_unbalanced_groups_hold_their_labels_alone(per_group: int) -> None:
    counts = counts_of(0.0, 3 * per_group)
    for group, labels in enumerate(GROUPS):
        mine = counts[group * per_group : (group + 1) * per_group]
        assert mine.sum() == MNIST[labels].sum()  # 24,754, 17,181 and 18,065
        assert np.ptp(mine.sum(1)) <= 1
        assert mine[:, labels].sum() == mine.sum()


def test_fully_balanced_is_iid() -> None:
    counts = counts_of(1.0, 9)
    assert np.ptp(counts.sum(1)) <= 1
    assert np.abs(counts / counts.sum(1, keepdims=True) - MNIST / 60_000).max() < 0.02


@pytest.mark.parametrize("balanced", [0.1, 0.2, 0.5, 0.8])
def test_the_balanced_part_is_spread_over_the_groups(balanced: float) -> None:
    counts = counts_of(balanced, 9)
    for group, labels in enumerate(GROUPS):
        mine = counts[3 * group : 3 * group + 3].sum(0)
        foreign = np.delete(mine, labels).sum()
        expected = balanced / 3 * (60_000 - MNIST[labels].sum())
        assert abs(foreign - expected) < 5 * np.sqrt(expected)


def test_any_number_of_nodes() -> None:
    counts = counts_of(0.0, 10)  # 4, 3 and 3 nodes
    np.testing.assert_array_equal((counts[:, 0] > 0).nonzero()[0], [0, 1, 2, 3])
    np.testing.assert_array_equal((counts[:, 4] > 0).nonzero()[0], [4, 5, 6])


@pytest.mark.parametrize("balanced", [0.0, 0.1, 1.0])
def test_groups_of_one_size_are_balanced_each_within_itself(balanced: float) -> None:
    """13,333 images each: of those, so many of the group's own labels, the others of any label at random."""
    parts = LabelGroups(balanced, GROUPS, group_share=13_333 / 60_000)(LABELS, None, 9, 0)
    assert len(np.unique(np.concatenate(parts))) == 3 * 13_333  # no row twice
    mixed = round(balanced * 13_333)
    for place, labels in enumerate(GROUPS):
        nodes = parts[3 * place : 3 * place + 3]
        assert sorted(map(len, nodes)) == [4444, 4444, 4445]
        foreign = (~np.isin(LABELS[np.concatenate(nodes)], labels)).sum()
        expected = mixed * (1 - MNIST[labels].sum() / 60_000)
        assert abs(foreign - expected) <= 5 * np.sqrt(expected)


def test_groups_of_one_size_cannot_be_larger_than_the_rarest_labels() -> None:
    with pytest.raises(UserError, match="is more than the data give: a group has 17181 rows of its own"):
        LabelGroups(0.0, GROUPS, group_share=17_182 / 60_000)(LABELS, None, 9, 0)
    LabelGroups(0.0, GROUPS, group_share=17_181 / 60_000)(LABELS, None, 9, 0)


@pytest.mark.parametrize("share", [0.0, 0.34])
def test_a_share_of_each_group_leaves_room_for_all(share: float) -> None:
    with pytest.raises(ValueError, match=r"partitioner\.group_share"):
        LabelGroups(0.0, GROUPS, group_share=share)
