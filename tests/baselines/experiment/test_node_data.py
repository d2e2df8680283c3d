"""Who holds which rows: worked out in one process, and taken by another."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.partitioners import Partitioner

OVERRIDES = "dataset=digits num_nodes=7 node_test_fraction=0.2"


def test_a_process_holds_what_another_has_dealt_without_dealing_again() -> None:
    dealt = Experiment(OVERRIDES).node_data
    taken = Experiment(f"{OVERRIDES} partitioner=pathological").node_data  # which would deal otherwise
    rows, lengths = dealt.partition_arrays()
    rows.flags.writeable = False  # as what comes through Ray
    taken.set_partition((rows, lengths))
    assert len(taken.partitions) == 7
    for ours, theirs in zip(taken.partitions, dealt.partitions, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])
        assert ours[0].flags.writeable


def test_a_node_without_a_test_set_has_none_where_its_rows_were_taken() -> None:
    first, second = (Experiment("dataset=digits num_nodes=3").node_data for _ in range(2))
    second.set_partition(first.partition_arrays())
    assert [len(test) for _, test in second.partitions] == [0, 0, 0]
    assert sum(len(train) for train, _ in second.partitions) == 1437


class Given(Partitioner):
    """Deals the rows that it was made with."""

    def __init__(self, parts: object) -> None:
        self.parts = parts

    def __call__(self, *_: object) -> list[np.ndarray]:
        return self.parts  # type: ignore[return-value]


def dealt(parts: object) -> list[np.ndarray]:
    """Return what two nodes train on; the digits have 1437 rows."""
    node_data = replace(Experiment("dataset=digits num_nodes=2").node_data, partitioner=Given(parts))
    return [train for train, _ in node_data.partitions]


ROWS = np.arange(1437)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([ROWS], "1 arrays of rows: expected one for each of num_nodes=2"),
        ([ROWS[:5], ROWS[5:9], ROWS[9:]], "3 arrays of rows: expected one for each of num_nodes=2"),
        (None, "0 arrays of rows: expected one for each of num_nodes=2"),
        (
            [ROWS[:5] + 0.5, ROWS],
            "node 0 rows of shape [5] and dtype float64: expected a list of whole numbers",
        ),
        ([ROWS, ROWS > 3], "node 1 rows of shape [1437] and dtype bool: expected a list of whole numbers"),
        ([ROWS, ROWS[:4].reshape(2, 2)], "node 1 rows of shape [2, 2] and dtype int64: expected a list"),
        ([ROWS, None], "node 1 rows of shape [] and dtype object: expected a list of whole numbers"),
        ([ROWS - 1, ROWS], "node 0 row -1: expected 0 to 1436"),
        ([ROWS, ROWS + 1], "node 1 row 1437: expected 0 to 1436"),
        ([ROWS, [3, 7, 3]], "node 1 a row twice: expected each once at most"),
        ([ROWS, [3, 7, 7]], "node 1 a row twice: expected each once at most"),
    ],
)
def test_rows_that_no_partitioner_may_give_are_told_in_one_line(parts: object, message: str) -> None:
    with pytest.raises(UserError) as error:
        dealt(parts)
    assert str(error.value).startswith(f"partitioner Given gave {message}")


@pytest.mark.parametrize(
    "parts",
    [
        [ROWS, ROWS],  # as partitioner=replicated
        [ROWS[:5], ROWS[9:12]],  # the others are nobody's
        ([7, 3, 5], ROWS[:3].astype(np.uint8)),
        iter([ROWS[:5], ROWS[5:]]),
        [[], ROWS],
    ],
)
def test_nodes_may_share_rows_or_leave_some(parts: object) -> None:
    first, second = dealt(parts)
    assert len(second)
    assert (np.diff(first) > 0).all()


@pytest.mark.parametrize(
    "partitioner", ["replicated", "shifted_labels partitioner.distribution=C partitioner.chunked=true"]
)
def test_a_row_that_several_nodes_hold_is_for_training_or_for_tests(partitioner: str) -> None:
    overrides = f"dataset=digits num_nodes=20 node_test_fraction=0.2 partitioner={partitioner}"
    experiment = Experiment(overrides)
    trained = set(np.concatenate([train for train, _ in experiment.partitions]).tolist())
    tested = [set(test.tolist()) for _, test in experiment.partitions]
    assert not trained & set.union(*tested)
    assert len(set.union(*tested)) == pytest.approx(0.2 * len(trained | set.union(*tested)), abs=1)
    whole = Experiment(overrides.replace("node_test_fraction=0.2", "node_test_fraction=0")).partitions
    for (train, test), (held, _) in zip(experiment.partitions, whole, strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), held)
