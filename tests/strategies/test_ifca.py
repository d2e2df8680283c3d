"""IFCA and HypCluster: the clusters' means by hand, their reduction, and replies that are doubted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from helpers.federation import Federation, answer, assert_same, model_in, play, record, round_of
from strategies import (
    IFCA,
    Adam,
    Agnostic,
    AndMask,
    CentralPrivacy,
    FedAvg,
    GeometricMask,
    Grouped,
    HypCluster,
    Krum,
    TooManyFailedRounds,
    Uniform,
)
from strategies.shared import protocol

START = {"w": np.array([1.0, 2.0])}
SIZES = [1, 3, 4, 1, 1, 1]


def node(chosen: Callable[[int, int], Any]) -> Callable[[int, RecordDict], RecordDict]:
    """Return a node k that adds (k + 1, k + 1) to the model that it chooses, ``chosen(k, round)``."""

    def train(partition_id: int, content: RecordDict) -> RecordDict:
        number = chosen(partition_id, round_of(content))
        key = number if type(number) is int and 0 <= number < 2 else 0
        w = model_in(content.array_records[protocol.model_key(key)])["w"] + partition_id + 1
        metrics = {} if number is None else {protocol.CHOSEN_MODEL: number}
        return answer({"w": w}, SIZES[partition_id], loss=float(partition_id), **metrics)

    return train


def models_of(strategy: IFCA, arrays: ArrayRecord) -> dict[str, list[float]]:
    models = strategy.models_to_evaluate(arrays).items()
    return {name: model_in(model)["w"].tolist() for name, model in models}


@pytest.mark.parametrize(("kind", "first", "second"), [(IFCA, 2.0, 2.0), (HypCluster, 13 / 5, 19 / 8)])
def test_each_model_is_the_mean_of_the_nodes_that_chose_it(
    kind: type[IFCA], first: float, second: float
) -> None:
    """In round 1 nodes 0 and 2 add 1 and 3 to the first model: (1 + 3) / 2, or (1 * 1 + 4 * 3) / 5 by examples.

    In round 2 all choose the second: (1 + 2 + 3) / 3, or (1 * 1 + 3 * 2 + 4 * 3) / 8, beside node 1's 2.
    """
    strategy, grid = kind(), Federation(node(lambda k, t: k % 2 if t == 1 else 1), 3)
    ((arrays, metrics),) = play(strategy, grid, record(START))
    assert models_of(strategy, arrays) == {
        "cluster0": pytest.approx([1 + first, 2 + first]),
        "cluster1": [3.0, 4.0],
    }
    assert [strategy.model_weight(name) for name in ("cluster0", "cluster1")] == [2, 1]
    counts = {name: metrics[name] for name in ("nodes-cluster0", "nodes-cluster1", "replies")}
    assert counts == {"nodes-cluster0": 2, "nodes-cluster1": 1, "replies": 3}
    assert protocol.CHOSEN_MODEL not in metrics
    assert metrics["loss"] == pytest.approx((1 * 0 + 3 * 1 + 4 * 2) / 8)
    ((arrays, _),) = play(strategy, grid, arrays, rounds=(2,))
    assert models_of(strategy, arrays) == {
        "cluster0": pytest.approx([1 + first, 2 + first]),
        "cluster1": pytest.approx([3 + second, 4 + second]),
    }
    assert [strategy.model_weight(name) for name in ("cluster0", "cluster1")] == [0, 3]


PARTS: dict[str, Any] = {"server_optimizer": Adam(epsilon=0.1), "mask": AndMask(0.4)}


@pytest.mark.parametrize(
    ("one", "fedavg"),
    [
        (IFCA(num_models=1), FedAvg(weighting=Uniform())),
        (HypCluster(num_models=1), FedAvg()),
        (HypCluster(num_models=1, **PARTS), FedAvg(**PARTS)),
    ],
    ids=["ifca", "hypcluster", "with parts"],
)
def test_one_model_is_fedavg_bit_for_bit(one: IFCA, fedavg: FedAvg) -> None:
    actual = play(one, Federation(node(lambda k, t: 0), 3), record(START), range(1, 5))
    expected = play(fedavg, Federation(node(lambda k, t: None), 3), record(START), range(1, 5))
    for (model, metrics), (plain, plain_metrics) in zip(actual, expected, strict=True):
        assert_same(model, plain)
        assert dict(metrics) == dict(plain_metrics)
    assert list(one.models_to_evaluate(actual[-1][0])) == ["global"]


def test_a_cluster_is_the_strategy_of_its_nodes_alone() -> None:
    """What parts remember, here Adam's moments, and the vectors that a mask frees are each cluster's own."""
    parts = {"server_optimizer": Adam(epsilon=0.1), "mask": GeometricMask(), "weighting": Uniform()}
    strategy = IFCA(num_models=2, **parts)
    (*_, (arrays, _)) = play(strategy, Federation(node(lambda k, t: k // 2), 4), record(START), range(1, 6))
    for number, members in enumerate([(0, 1), (2, 3)]):
        alone = FedAvg(**parts, members=members)
        (*_, (model, _)) = play(alone, Federation(node(lambda k, t: None), 4), record(START), range(1, 6))
        assert_same(strategy.models_to_evaluate(arrays)[f"cluster{number}"], model)


@pytest.mark.parametrize(
    ("choice", "fault"),
    [
        (2, "sent chosen-model=2, expected 0 to 1"),
        (-1, "sent chosen-model=-1, expected a number from 0"),
        (0.5, "sent chosen-model=0.5, expected 0 to 1"),
        (None, "sent no 'chosen-model'"),
    ],
)
def test_a_reply_that_names_no_model_is_left_out(
    choice: Any, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = IFCA()
    grid = Federation(node(lambda k, t: choice if k == 2 else 0), 3)
    ((first, metrics),) = play(strategy, grid, record(START))
    assert (metrics["replies"], metrics["failed"]) == (2, 1)
    assert model_in(first)["w"].tolist() == [2.5, 3.5]
    assert any(fault in line for line in caplog.messages)


def test_a_cluster_too_small_for_its_parts_keeps_its_model() -> None:
    """Krum needs five nodes with one that is hostile; where no cluster has them, the round takes no step."""
    strategy = IFCA(aggregation=Krum(num_hostile=1), max_failed_rounds=2)
    grid = Federation(node(lambda k, t: int(k == 1) if t == 1 else k % 2), 6)
    ((arrays, _),) = play(strategy, grid, record(START))
    assert models_of(strategy, arrays)["cluster1"] == [1.0, 2.0]
    assert models_of(strategy, arrays)["cluster0"] != [1.0, 2.0]
    with pytest.raises(TooManyFailedRounds, match="2 rounds in a row failed"):
        play(strategy, grid, arrays, rounds=(2, 3))


def test_evaluating_nodes_are_sent_all_models() -> None:
    strategy, grid = IFCA(num_models=2), Federation(node(lambda k, t: k), 2)
    ((arrays, _),) = play(strategy, grid, record(START))
    for message in strategy.configure_evaluate(1, arrays, ConfigRecord(), grid):
        assert message.content["config"][protocol.NUM_MODELS] == 2
        for number, model in enumerate(strategy.models_to_evaluate(arrays).values()):
            assert_same(message.content[protocol.model_key(number)], model)


def test_frozen_parameters_travel_once_whatever_the_number_of_models() -> None:
    start = {"w": np.array([1.0, 2.0]), "body": np.ones(5)}
    strategy = IFCA(frozen_names=("body",))

    def freezing(partition_id: int, content: RecordDict) -> RecordDict:
        reply = node(lambda k, t: k % 2)(partition_id, content)
        reply["config"]["frozen"] = content["config"]["frozen"]
        return reply

    grid = Federation(freezing, 2)
    ((first, _),) = play(strategy, grid, record(start))
    assert all(model["body"].shape == (5,) for model in strategy.models_to_evaluate(first).values())
    for message in strategy.configure_train(2, first, ConfigRecord(), grid):
        assert [list(message.content[protocol.model_key(number)]) for number in (0, 1)] == [["w"], ["w"]]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"num_models": 0}, "strategy.num_models=0 is out of range"),
        ({"average_last": 2}, "strategy.average_last=2 is out of range: expected 1 with IFCA"),
        ({"privacy": CentralPrivacy()}, "each group's model shows who is in it"),
        ({"weighting": Agnostic()}, "weighting=Agnostic remembers each node's weight in one model"),
    ],
)
def test_what_needs_a_single_model_is_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        IFCA(**settings)


def test_groups_of_several_models_are_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy\.inner=IFCA has several models"):
        Grouped(inner=IFCA(), groups={"a": (0, 1)})


def test_several_models_of_a_users_own_are_sent_to_evaluating_nodes() -> None:
    class Two(FedAvg):
        def models_to_evaluate(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
            return {"global": arrays, "zero": record({"w": np.zeros(2)})}

    grid = Federation(node(lambda k, t: None), 2)
    strategy = Two()
    ((first, _),) = play(strategy, grid, record(START))
    for message in strategy.configure_evaluate(1, first, ConfigRecord(), grid):
        assert message.content["config"]["num-models"] == 2
        assert model_in(message.content["arrays-1"])["w"].tolist() == [0, 0]
