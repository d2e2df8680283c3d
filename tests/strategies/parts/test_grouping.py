"""Groups from selection vectors, at the edges of the thesis' Algorithm 3."""

import pytest
import torch
from torch import Tensor

from strategies import KMeans, Overlap


def rows(*ones: tuple[int, int], of: int) -> Tensor:
    """Return selection vectors that are 1 in [first, last) each."""
    selections = torch.zeros(len(ones), of, dtype=torch.bool)
    for row, (first, last) in zip(selections, ones, strict=True):
        row[first:last] = True
    return selections


@pytest.mark.parametrize(("threshold", "share"), [(0.55, 55), (0.07, 7), (0.29, 29), (0.5, 50)])
def test_an_overlap_of_exactly_the_threshold_joins(threshold: float, share: int) -> None:
    """0.55 * 100 is above 55 in floating point: compared as it is, equality would not be seen."""
    assert Overlap(threshold)(rows((0, 100), (0, share), of=100), 0) == [[0, 1]]
    assert Overlap(threshold)(rows((0, 100), (0, share - 1), of=100), 0) == [[0], [1]]


def test_a_node_must_overlap_with_all_members() -> None:
    """0 and 1 share 4, 1 and 2 share 4, 0 and 2 share 2 of 10: node 2 is not taken, and founds a group."""
    chain = rows((0, 6), (2, 8), (4, 10), of=10)
    assert Overlap(0.4)(chain, 0) == [[0, 1], [2]]
    assert Overlap(0.2)(chain, 0) == [[0, 1, 2]]


def test_a_node_joins_the_first_group_that_takes_it() -> None:
    """Node 2 shares 3 of 10 with each of the others, which share none."""
    assert Overlap(0.3)(rows((0, 5), (5, 10), (2, 8), of=10), 0) == [[0, 2], [1]]


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_the_ends_of_the_range_are_allowed(threshold: float) -> None:
    """0 makes one group; 1 groups those that are right about everything."""
    actual = Overlap(threshold)(rows((0, 3), (0, 3), (0, 2), of=3), 0)
    assert actual == ([[0, 1, 2]] if threshold == 0 else [[0, 1], [2]])


@pytest.mark.parametrize("threshold", [-0.01, 1.01, float("nan")])
def test_a_threshold_out_of_range_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        Overlap(threshold)


def test_k_means_finds_what_is_alike_and_orders_groups_by_their_first_node() -> None:
    apart = rows((8, 12), (0, 4), (8, 11), (0, 3), (4, 8), of=12)
    assert KMeans(3)(apart, 0) == [[0, 2], [1, 3], [4]]
    assert KMeans(1)(apart, 0) == [[0, 1, 2, 3, 4]]
    assert KMeans(7)(apart, 0) == [[0], [1], [2], [3], [4]]  # at most one group for each node
    with pytest.raises(ValueError, match="num_groups=0"):
        KMeans(0)


def three_kinds(missed: float, examples: int = 600) -> Tensor:
    """Return selections of nine nodes, three of a kind, that differ in one of 20 examples by chance.

    A kind is right about its own third of the examples, and about all but a share ``missed`` of the others.
    """
    draws = torch.Generator().manual_seed(3)
    own = torch.arange(3)[:, None] == torch.arange(examples)[None] % 3
    right = own | (torch.rand(3, examples, generator=draws) >= missed)
    return right.repeat(3, 1) ^ (torch.rand(9, examples, generator=draws) < 0.05)


KINDS = [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


@pytest.mark.parametrize("grouping", [Overlap("tuned"), KMeans("tuned")])
@pytest.mark.parametrize("missed", [1.0, 0.4])
def test_tuned_finds_what_is_alike_however_accurate_the_nodes_are(
    grouping: Overlap | KMeans, missed: float
) -> None:
    assert grouping(three_kinds(missed), 0) == KINDS


@pytest.mark.parametrize("grouping", [Overlap("tuned"), KMeans("tuned")])
def test_nodes_without_substantial_differences_are_one_group(grouping: Overlap | KMeans) -> None:
    assert grouping(three_kinds(0.0), 0) == [list(range(9))]
    assert grouping(torch.ones(9, 10, dtype=torch.bool), 0) == [list(range(9))]
    for nodes in (1, 2):
        assert grouping(three_kinds(1.0)[:nodes], 0) == [list(range(nodes))]


def test_one_half_tunes_and_the_other_groups() -> None:
    """The first of every two examples says three kinds, the second one of every two: two kinds."""
    known, other = three_kinds(1.0), torch.arange(9)[:, None] % 2 == torch.arange(600)[None] % 2
    selections = torch.stack([known, other], 2).flatten(1)
    tuned = KMeans("tuned")(selections, 0)
    assert len(tuned) == len(KMeans(3)(other, 0))
    assert tuned != KINDS
    swapped = torch.stack([other, known], 2).flatten(1)
    assert KMeans("tuned")(swapped, 0) == KMeans(2)(known, 0)


def test_to_tune_takes_two_examples() -> None:
    with pytest.raises(ValueError, match="at least 2 validation examples: raise validation_size"):
        Overlap("tuned")(torch.ones(3, 1, dtype=torch.bool), 0)


@pytest.mark.parametrize("value", ["best", -1, 0])
def test_a_number_of_groups_that_is_none_is_refused(value: int | str) -> None:
    with pytest.raises(ValueError, match=r"grouping.num_groups=.*1 or more, or tuned"):
        KMeans(value)


def test_how_many_validation_examples_it_takes() -> None:
    assert [grouping.least_examples for grouping in (Overlap(0.5), KMeans(2))] == [1, 1]
    assert [grouping.least_examples for grouping in (Overlap("tuned"), KMeans("tuned"))] == [2, 2]
