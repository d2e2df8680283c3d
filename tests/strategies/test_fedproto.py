"""FedProto on the server: the prototypes' mean by hand, its reduction, and replies that are doubted."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from helpers.federation import Federation, answer, assert_same, model_in, play, record, round_of, sent_model
from strategies import FedAvg, FedProto, LocalOnly, TooManyFailedRounds
from strategies.shared import protocol

START = {"fc.weight": np.zeros((2, 2), np.float32), "fc.bias": np.zeros(2, np.float32)}
# Of the classes 0 and 1: node 0 has 1 and 3 examples, node 1 has 3 of the first alone.
MEANS = {0: [[4.0, 0.0], [1.0, 2.0]], 1: [[0.0, 8.0], [7.0, 7.0]]}
COUNTS = {0: [1, 3], 1: [3, 0]}


def node(partition_id: int, content: RecordDict) -> RecordDict:
    model = {name: values + partition_id + 1 for name, values in sent_model(content).items()}
    reply = answer(model, 4)
    if protocol.PROTOTYPES in content["config"]:
        arrays = {
            "means": np.array(MEANS[partition_id], np.float32),
            "counts": np.array(COUNTS[partition_id]),
        }
        reply[protocol.PROTOTYPES] = record(arrays)
    return reply


def sent_prototypes(strategy: FedProto, grid: Federation, server_round: int) -> dict[str, np.ndarray]:
    """Return what the round's nodes, all of them the same, are sent."""
    messages = strategy.configure_train(server_round, record(START), ConfigRecord(), grid)
    first, *others = [model_in(message.content[protocol.PROTOTYPES]) for message in messages]
    for other in others:
        np.testing.assert_equal(other, first)
    return first


def test_prototypes_are_weighted_by_the_nodes_examples_and_models_are_not_averaged() -> None:
    """Class 0: (1 (4, 0) + 3 (0, 8)) / 4; class 1 is node 0's alone."""
    strategy, grid = FedProto(), Federation(node, 2)
    for message in strategy.configure_train(1, record(START), ConfigRecord(), grid):
        assert protocol.PROTOTYPES not in message.content
    ((arrays, _),) = play(strategy, grid, record(START))
    models = {
        name: model_in(model)["fc.bias"][0] for name, model in strategy.models_to_evaluate(arrays).items()
    }
    assert models == {"node0": 1.0, "node1": 2.0}
    sent = sent_prototypes(strategy, grid, 2)
    assert sent["means"].tolist() == [[1.0, 6.0], [1.0, 2.0]]
    assert sent["counts"].tolist() == [4, 3]


def test_a_class_that_no_node_of_a_round_has_keeps_its_prototype() -> None:
    strategy, grid = FedProto(), Federation(node, 2)
    ((first, _),) = play(strategy, grid, record(START))
    grid.online.remove(100)  # node 0
    play(strategy, grid, first, rounds=(2,))
    assert sent_prototypes(strategy, grid, 3)["means"].tolist() == [[0.0, 8.0], [1.0, 2.0]]


def test_without_strength_it_is_local_training_bit_for_bit() -> None:
    actual = play(FedProto(strength=0.0), Federation(node, 2), record(START), range(1, 4))
    expected = play(LocalOnly(inner=FedAvg()), Federation(node, 2), record(START), range(1, 4))
    for (model, metrics), (plain, plain_metrics) in zip(actual, expected, strict=True):
        assert_same(model, plain)
        assert dict(metrics) == dict(plain_metrics)


GOOD: dict[str, Any] = {"means": np.zeros((2, 2), np.float32), "counts": np.array([1, 2])}


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({**GOOD, "means": np.zeros((3, 2), np.float32)}, "sent prototypes of the shapes"),
        ({**GOOD, "counts": np.array([1, 2, 3])}, "sent prototypes of the shapes"),
        ({"means": GOOD["means"]}, "sent prototypes of the shapes"),
        ({**GOOD, "more": np.zeros(1)}, "sent prototypes of the shapes"),
        ({**GOOD, "means": np.array([[np.nan, 0], [0, 0]])}, "sent NaN or infinite values in 'prototypes'"),
        ({**GOOD, "counts": np.array([-1, 2])}, "expected whole numbers"),
        ({**GOOD, "counts": np.array([0.5, 2])}, "expected whole numbers"),
        ({**GOOD, "counts": np.array([1e200, 2])}, "expected whole numbers"),
        ({**GOOD, "counts": np.array(["a", "b"])}, "sent unreadable arrays"),
        (None, "sent no 'prototypes' record"),
    ],
)
def test_prototypes_that_are_none_leave_their_node_out(
    arrays: dict[str, Any] | None, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(partition_id: int, content: RecordDict) -> RecordDict:
        reply = node(partition_id, content)
        if partition_id == 1 and round_of(content) == 2:
            del reply[protocol.PROTOTYPES]
            if arrays is not None:
                reply[protocol.PROTOTYPES] = record(arrays)
        return reply

    strategy, grid = FedProto(), Federation(wrong, 2)
    history = play(strategy, grid, record(START), rounds=(1, 2))
    assert [metrics["replies"] for _, metrics in history] == [2, 1]
    assert any(fault in line for line in caplog.messages)
    assert model_in(strategy.models_to_evaluate(record(START))["node1"])["fc.bias"].tolist() == [2.0, 2.0]
    assert sent_prototypes(strategy, grid, 3)["means"].tolist() == MEANS[0]


def test_a_run_whose_nodes_send_none_ends() -> None:
    def stock(partition_id: int, content: RecordDict) -> RecordDict:
        return answer(sent_model(content), 4)

    with pytest.raises(TooManyFailedRounds, match="sent no 'prototypes' record"):
        FedProto().start(Federation(stock, 2), record(START), num_rounds=5)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: FedProto(strength=-1), r"strategy\.strength=-1 is out of range"),
        (lambda: FedProto(inner=FedAvg()), r"strategy\.inner=FedAvg: strategy=fedproto needs"),
        (lambda: FedProto().check(record({"w": np.zeros(3)})), "needs a model with a linear layer"),
    ],
)
def test_what_has_no_prototypes_is_refused(make: Any, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        make()
