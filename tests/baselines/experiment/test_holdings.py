"""Who holds which rows: worked out in one process, and taken by another."""

import numpy as np

from baselines.experiment.experiment import Experiment

OVERRIDES = "dataset=digits num_nodes=7 node_test_fraction=0.2"


def test_a_process_holds_what_another_has_dealt_without_dealing_again() -> None:
    dealt = Experiment(OVERRIDES).holdings
    taken = Experiment(f"{OVERRIDES} partitioner=pathological").holdings  # which would deal otherwise
    rows, lengths = dealt.dealt()
    rows.flags.writeable = False  # as what comes through Ray
    taken.take((rows, lengths))
    assert len(taken.partitions) == 7
    for ours, theirs in zip(taken.partitions, dealt.partitions, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])
        assert ours[0].flags.writeable


def test_a_node_without_a_test_set_has_none_where_its_rows_were_taken() -> None:
    first, second = (Experiment("dataset=digits num_nodes=3").holdings for _ in range(2))
    second.take(first.dealt())
    assert [len(test) for _, test in second.partitions] == [0, 0, 0]
    assert sum(len(train) for train, _ in second.partitions) == 1437
