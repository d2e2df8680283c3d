"""Nodes that drop out: who does, by the seed alone, and what becomes of the round."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict

from helpers.federation import Federation, answer, assert_same, model_in, play, record, sent_model
from strategies import Erosion, FedAvg, Grouped, Krum, Scaffold, TooManyFailedRounds, Uniform, WeightErosion
from strategies.core.pseudo_gradient import PseudoGradientStrategy

SEED, NODES, DROPOUT = 4, 6, 0.4
START = {"w": np.zeros(2, np.float32)}


def node(partition_id: int, content: RecordDict) -> RecordDict:
    return answer({"w": sent_model(content)["w"] - np.float32(partition_id + 1)})


def here(server_round: int, partitions: Sequence[int] = range(NODES)) -> list[int]:
    """Return who comes: the first number of each node's own generator, of purpose 10, is 0.4 or above."""
    return [k for k in partitions if np.random.default_rng([SEED, server_round, k, 10]).random() >= DROPOUT]


def strategy(**settings: object) -> PseudoGradientStrategy:
    given = {"num_nodes": NODES, "seed": SEED, "query_partitions": True, "dropout": DROPOUT}
    return FedAvg(**{**given, **settings})  # type: ignore[arg-type]


def test_who_comes_is_drawn_from_seed_round_and_partition() -> None:
    grid, ours = Federation(node, NODES), strategy()
    history = play(ours, grid, record(START), range(1, 5))
    expected = [here(t) for t in range(1, 5)]
    assert grid.trained() == [k for present in expected for k in present]
    assert len({tuple(present) for present in expected}) > 1, "the same nodes in all rounds tell nothing"
    assert [(m["replies"], m["failed"], m["dropped"]) for _, m in history] == [
        (len(present), 0, NODES - len(present)) for present in expected
    ]


def test_the_others_take_the_step_by_hand() -> None:
    """w = 0 - the mean of k + 1 over who comes."""
    ((arrays, _),) = play(strategy(), Federation(node, NODES), record(START))
    mean = np.mean([k + 1 for k in here(1)])
    np.testing.assert_allclose(arrays["w"].numpy(), [-mean, -mean], rtol=1e-6)


def test_without_dropout_it_is_the_strategy_without() -> None:
    with_none = play(strategy(dropout=0.0), Federation(node, NODES), record(START), range(1, 4))
    plain = FedAvg(num_nodes=NODES, seed=SEED, query_partitions=True)
    for (ours, metrics), (theirs, _) in zip(
        with_none, play(plain, Federation(node, NODES), record(START), range(1, 4)), strict=True
    ):
        assert_same(ours, theirs)
        assert "dropped" not in metrics


def test_a_round_that_nobody_comes_to_is_no_failure() -> None:
    ours, grid = strategy(dropout=0.999, max_failed_rounds=2), Federation(node, NODES)
    history = play(ours, grid, record(START), range(1, 8))
    assert [metrics["dropped"] for _, metrics in history] == [NODES] * 7
    assert_same(history[-1][0], record(START))
    assert grid.trained() == []


@pytest.mark.parametrize(
    ("kind", "needs", "steps"),
    [
        (WeightErosion, {"weighting": Erosion(requester=2)}, lambda who: 2 in who),
        (FedAvg, {"weighting": Uniform(), "aggregation": Krum(num_hostile=1)}, lambda who: len(who) >= 5),
    ],
    ids=["the requester is away", "too few for Krum"],
)
def test_who_is_needed_and_away_makes_no_failure(
    kind: type[PseudoGradientStrategy],
    needs: dict[str, Any],
    steps: Callable[[list[int]], bool],
) -> None:
    ours = kind(
        num_nodes=NODES,
        seed=SEED,
        query_partitions=True,
        dropout=DROPOUT,
        max_failed_rounds=1,
        **needs,
    )
    history = play(ours, Federation(node, NODES), record(START), range(1, 25))
    models = [START["w"][0], *(model_in(arrays)["w"][0] for arrays, _ in history)]
    moved = [bool(after != before) for before, after in pairwise(models)]
    assert moved == [steps(here(t)) for t in range(1, 25)]
    assert len(set(moved)) == 2


def test_a_needed_reply_that_is_unsound_is_a_failure() -> None:
    def broken(partition_id: int, content: RecordDict) -> RecordDict:
        if partition_id == 2:
            raise RuntimeError("disk full")
        return node(partition_id, content)

    settings = {"num_nodes": NODES, "seed": SEED, "query_partitions": True, "dropout": 0.1}
    ours = WeightErosion(weighting=Erosion(requester=2), max_failed_rounds=1, **settings)
    with pytest.raises(TooManyFailedRounds, match="the requester, partition 2, sent no sound reply"):
        play(ours, Federation(broken, NODES), record(START), range(1, 9))


def test_groups_add_their_absent_nodes_up() -> None:
    groups = {"a": (0, 1, 2), "b": (3, 4, 5)}
    grid = Federation(node, NODES)
    history = play(Grouped(inner=strategy(), groups=groups), grid, record(START), (1, 2))
    assert [metrics["dropped"] for _, metrics in history] == [NODES - len(here(t)) for t in (1, 2)]


def test_scaffold_waits_for_no_variate_of_who_was_not_asked() -> None:
    messages: list[tuple[int, list[int]]] = []

    def with_variate(partition_id: int, content: RecordDict) -> RecordDict:
        config = content.config_records["config"]
        messages.append((int(config["server-round"]), list(config.get("control-lost", []))))  # type: ignore[arg-type,call-overload]
        reply = node(partition_id, content)
        reply["control"] = content.array_records["control"]
        return reply

    ours = Scaffold(num_nodes=NODES, seed=SEED, query_partitions=True, dropout=DROPOUT)
    play(ours, Federation(with_variate, NODES), record(START), (1, 2))
    new = sorted(set(here(2)) - set(here(1)))
    assert all(lost == new for server_round, lost in messages if server_round == 2)


@pytest.mark.parametrize("dropout", [-0.1, 1, 1.5, float("nan")])
def test_only_a_probability_below_1_will_do(dropout: float) -> None:
    with pytest.raises(ValueError, match=r"participation\.dropout=.* is out of range"):
        strategy(dropout=dropout)


def test_failed_rounds_still_count_where_nobody_dropped_out() -> None:
    def broken(partition_id: int, content: RecordDict) -> RecordDict:
        return RecordDict({"metrics": MetricRecord({"num-examples": 1})})

    with pytest.raises(TooManyFailedRounds):
        play(strategy(dropout=0.01), Federation(broken, NODES), record(START), range(1, 5))
