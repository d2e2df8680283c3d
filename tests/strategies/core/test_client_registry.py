"""Which nodes a round asks."""

import logging
import time
from functools import partial

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode

import strategies
from helpers.federation import Federation, answer, model_in, play, record, sent_model
from strategies.core.client_registry import ClientRegistry, sample_partitions

pytestmark = pytest.mark.runtime
ROUNDS = (1, 2, 3, 4)
FedAvg = partial(strategies.FedAvg, query_partitions=True)
MODEL = record({"w": np.zeros(3, np.float32)})


def moving(partition_id: int, content: RecordDict) -> RecordDict:
    return answer({name: values + 1 for name, values in sent_model(content).items()})


def sampled(
    grid: Federation, strategy: strategies.FedAvg, rounds: tuple[int, ...] = ROUNDS
) -> list[list[int]]:
    grid.trained()
    chosen = []
    for server_round in rounds:
        play(strategy, grid, MODEL, (server_round,))
        chosen.append(grid.trained())
    return chosen


def test_a_seed_names_the_partitions_whatever_the_node_ids_and_their_order() -> None:
    few = {"nodes_per_round": 3, "num_nodes": 8}
    grid = Federation(moving, 8)
    chosen = sampled(grid, FedAvg(seed=1, **few))
    assert all(len(set(ids)) == 3 and ids == sorted(ids) for ids in chosen)
    assert len({tuple(ids) for ids in chosen}) > 1  # not the same ones every round

    other_ids = Federation(moving, {2**60 - 11 * k: k for k in range(8)})
    assert sampled(other_ids, FedAvg(seed=1, **few)) == chosen
    backwards = Federation(moving, 8)
    backwards.online.reverse()
    assert sampled(backwards, FedAvg(seed=1, **few)) == chosen
    assert sampled(Federation(moving, 8), FedAvg(seed=2, **few)) != chosen


def test_a_round_does_not_depend_on_the_rounds_before_it() -> None:
    strategy = FedAvg(seed=1, nodes_per_round=3, num_nodes=8)
    alone = sampled(Federation(moving, 8), FedAvg(seed=1, nodes_per_round=3, num_nodes=8), (4,))
    assert alone == sampled(Federation(moving, 8), strategy)[-1:]


def test_every_partition_has_its_turn() -> None:
    drawn = [sample_partitions(list(range(8)), 2, 0, t) for t in range(400)]
    assert all(first < second for first, second in drawn)  # nobody twice
    counts = np.bincount([k for pair in drawn for k in pair], minlength=8)
    assert (np.abs(counts - 100) < 40).all()  # 100 each are expected, with a deviation of 8.7


def test_asks_all_when_there_are_no_more() -> None:
    assert sample_partitions([4, 2, 9], 5, 0, 1) == [2, 4, 9]
    assert sampled(Federation(moving, 3), FedAvg(), (1,)) == [[0, 1, 2]]


def test_members_only_are_asked() -> None:
    assert sampled(Federation(moving, 5), FedAvg(members=(1, 3)), (1,)) == [[1, 3]]


def test_each_node_is_asked_for_its_partition_once() -> None:
    grid = Federation(moving, 4)
    play(FedAvg(), grid, MODEL, ROUNDS)
    assert sorted(k for kind, k in grid.requests if kind == "query") == [0, 1, 2, 3]


def test_a_node_that_appears_later_takes_part() -> None:
    grid, strategy = Federation(moving, 4), FedAvg()
    newcomer = grid.online.pop(1)
    assert sampled(grid, strategy, (1,)) == [[0, 2, 3]]
    grid.online.append(newcomer)
    assert sampled(grid, strategy, (2,)) == [[0, 1, 2, 3]]


class Shy(Federation):
    """Node 101 cannot be reached until it is ``awake``."""

    awake = False

    def _answer(self, message: Message) -> Message:
        if message.metadata.dst_node_id == 101 and not self.awake:
            return Message(Error(ErrorCode.NODE_UNAVAILABLE, "away"), reply_to=message)
        return super()._answer(message)


def test_a_node_that_did_not_answer_at_first_is_asked_again_though_there_are_enough() -> None:
    grid, strategy = Shy(moving, 3), FedAvg()
    assert sampled(grid, strategy, (1, 2)) == [[0, 2], [0, 2]]
    grid.awake = True
    assert sampled(grid, strategy, (3,)) == [[0, 1, 2]]


class Forgetful(Federation):
    """Node 101 fails at the first queries."""

    failures = 1

    def _answer(self, message: Message) -> Message:
        is_query = message.metadata.message_type == "query" and message.metadata.dst_node_id == 101
        if is_query and self.failures > 0:
            self.failures -= 1
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "out of\nmemory"), reply_to=message)
        return super()._answer(message)


def test_a_node_whose_query_fails_is_asked_again_and_gets_no_other_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        grid, strategy = Forgetful(moving, 3), FedAvg(num_nodes=3)
        assert sampled(grid, strategy, (1,)) == [[0, 1, 2]]
        assert strategy._recipients == {0: 100, 1: 101, 2: 102}
        grid, strategy = Forgetful(moving, 3), FedAvg()
        grid.failures = 2  # the other nodes are enough to begin with
        assert sampled(grid, strategy) == [[0, 2], [0, 2], [0, 1, 2], [0, 1, 2]]
    message = "node 101 does not say which partition it holds, and is asked again: out of memory"
    assert [r.getMessage() for r in caplog.records] == [message] * 2  # once by each roster


def test_a_lost_node_is_named_once_not_asked_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = Federation(moving, 4), FedAvg(num_nodes=4)
    assert sampled(grid, strategy, (1,)) == [[0, 1, 2, 3]]
    lost = grid.online.pop(2)
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        assert sampled(grid, strategy, (2, 3)) == [[0, 1, 3]] * 2
    messages = [r.getMessage() for r in caplog.records]
    assert messages == ["partition 2 is no longer connected: continuing without it"]
    grid.online.insert(0, lost)
    assert sampled(grid, strategy, (4,)) == [[0, 1, 2, 3]]


def test_a_node_that_comes_back_under_a_new_id_keeps_its_partition() -> None:
    grid, strategy = Federation(moving, 3), FedAvg()
    sampled(grid, strategy, (1,))
    grid.online.remove(101)
    grid.partition_of[7] = 1
    grid.online.append(7)
    assert sampled(grid, strategy, (2,)) == [[0, 1, 2]]


def test_the_holder_of_a_partition_keeps_it_until_it_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = Federation(moving, 3), FedAvg()
    sampled(grid, strategy, (1,))
    grid.partition_of[7] = 1
    grid.online.append(7)
    sampled(grid, strategy, (2, 3))
    assert strategy._recipients == {0: 100, 1: 101, 2: 102}
    refused = "node 7 says that it holds partition 1, as node 101 does, and is not asked: give each its own"
    assert [record.getMessage() for record in caplog.records] == [refused]  # once
    grid.online.remove(101)
    sampled(grid, strategy, (4,))
    assert strategy._recipients == {0: 100, 1: 7, 2: 102}


def test_a_node_that_was_away_is_asked_again_who_it_is() -> None:
    grid, strategy = Federation(moving, {100: 0, 101: 1}), FedAvg()
    sampled(grid, strategy, (1,))
    grid.online.remove(101)
    sampled(grid, strategy, (2,))
    grid.partition_of[101] = 2  # its owner has corrected its configuration
    grid.online.append(101)
    grid._contexts.clear()
    assert sampled(grid, strategy, (3,)) == [[0, 2]]


@pytest.mark.parametrize("fails", [False, True])
def test_a_node_that_was_configured_anew_unnoticed_is_asked_again_who_it_is(fails: bool) -> None:
    """Within a minute of its end the SuperLink takes a node for connected still."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        if fails and partition_id == 2:
            raise ValueError("no such partition")
        moved = {name: values + 1 for name, values in sent_model(content).items()}
        return answer(moved, **{"partition-id": partition_id})

    grid, strategy = Federation(node, {100: 0, 101: 1}), FedAvg()
    assert sampled(grid, strategy, (1,)) == [[0, 1]]
    grid.partition_of[101] = 2
    assert sampled(grid, strategy, (2,)) == [[0, 2]]  # it was asked as 1
    play(strategy, grid, MODEL, (3,))
    assert grid.requests[0] == ("query", 2)
    assert strategy._recipients == {0: 100, 2: 101}
    assert strategy.participation_counts()["partition 1"] == {"updates": 1, "left_out": 1, "examples": 1}
    assert strategy.participation_counts().get("partition 2", {}).get("updates", 0) == (0 if fails else 1)


def test_after_a_round_without_faults_the_list_of_nodes_is_still_good() -> None:
    """Else a large population would be sorted anew in each round."""
    grid, strategy = Federation(moving, {100: 0, 101: 1}), FedAvg()
    sampled(grid, strategy, (1,))
    assert strategy.registry._online == {100, 101}


def test_a_holder_that_fails_keeps_its_partition_from_a_newcomer() -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        if len(grid.online) == 1:
            raise ValueError("out of memory")
        return moving(partition_id, content)

    grid, strategy = Federation(node, {100: 0}), FedAvg(num_nodes=1)
    sampled(grid, strategy, (1,))
    grid.partition_of[7] = 0
    grid.online.append(7)
    sampled(grid, strategy, (2,))
    assert strategy._recipients == {0: 100}


def test_a_partition_out_of_range_takes_no_part(caplog: pytest.LogCaptureFixture) -> None:
    grid = Federation(moving, {100: 0, 101: 2})
    assert sampled(grid, FedAvg(num_nodes=2, node_timeout=0.1), (1,)) == [[0]]
    message = "partition-id is 2, expected a whole number from 0 to 1"
    assert any(message in record.getMessage() for record in caplog.records)


def test_two_nodes_with_one_partition_are_named_and_one_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    grid = Federation(moving, {5: 0, 7: 1, 9: 0})
    with caplog.at_level(logging.WARNING):
        assert sampled(grid, FedAvg(), (1,)) == [[0, 1]]
    (line,) = (record.getMessage() for record in caplog.records)
    assert line == (
        "node 9 says that it holds partition 0, as node 5 does, and is not asked: give each its own"
    )


def test_goes_on_with_those_there_are_after_the_time_limit(caplog: pytest.LogCaptureFixture) -> None:
    strategy = FedAvg(num_nodes=5, node_timeout=0.2)
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        assert sampled(Federation(moving, 3), strategy, (1, 2)) == [[0, 1, 2]] * 2
    assert [r.getMessage() for r in caplog.records] == ["3 of 5 nodes are connected: continuing with them"]


def test_nodes_that_are_connected_and_take_no_part_are_counted_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = Federation(moving, {5: 0, 7: 1, 9: 0, 11: 8})
    assert sampled(grid, FedAvg(num_nodes=4, node_timeout=0.1), (1,)) == [[0, 1]]
    message = caplog.records[-1].getMessage()
    assert message == "2 of 4 nodes take part, of 4 that are connected: continuing with them"


def test_waits_for_nodes_before_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Federation(moving, 3)
    absent = grid.online[1:]
    del grid.online[1:]
    monkeypatch.setattr(time, "sleep", lambda seconds: grid.online.append(absent.pop(0)))
    assert sampled(grid, FedAvg(num_nodes=3), (1,)) == [[0, 1, 2]]


def test_no_node_at_all_is_an_error() -> None:
    grid = Federation(moving, 3)
    grid.online.clear()
    with pytest.raises(TimeoutError, match="no node has connected within 0 s"):
        play(FedAvg(node_timeout=0.0), grid, MODEL)


def test_without_a_query_nodes_are_ordered_by_node_id() -> None:
    grid = Federation(moving, {23: 0, 8: 1, 1: 2}, query=False)
    for roster in (ClientRegistry(query=False), ClientRegistry()):  # told so, or found out
        assert roster.find_nodes(grid, 3) == {0: 1, 1: 8, 2: 23}
    grid = Federation(moving, 3)
    play(strategies.FedAvg(), grid, MODEL)
    assert all(kind == "train" for kind, _ in grid.requests)


def test_a_newcomer_without_a_query_gets_the_next_number() -> None:
    grid, roster = Federation(moving, {30: 0, 10: 1, 20: 2}, query=False), ClientRegistry()
    grid.online.remove(10)
    assert roster.find_nodes(grid, 2) == {0: 20, 1: 30}
    grid.online.append(10)
    assert roster.find_nodes(grid, 2) == {0: 20, 1: 30, 2: 10}


def test_a_node_with_another_kind_of_query_takes_part() -> None:
    grid = Federation(moving, 2, query=False)

    @grid.answering.app.query()
    def version(message: Message, context: object) -> Message:
        return Message(RecordDict(), reply_to=message)

    assert sampled(grid, FedAvg(), (1,)) == [[0, 1]]


def test_works_with_a_client_as_in_flowers_quickstart() -> None:
    """Another name for the model's record, no query function, more metrics."""
    from flwr.app import ArrayRecord, Context, MetricRecord
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        state = message.content["arrays"].to_torch_state_dict()
        assert message.content["config"]["server-round"] == 1
        state["w"] += context.node_id
        metrics = MetricRecord({"train_loss": 0.5, "num-examples": 2, "losses": [1.0, 2.0]})
        content = RecordDict({"model": ArrayRecord(state), "numbers": metrics})
        return Message(content=content, reply_to=message)

    grid = Federation(moving, {10: 0, 20: 1})
    grid.answering.app = app
    ((new, metrics),) = play(FedAvg(), grid, MODEL)
    np.testing.assert_array_equal(model_in(new)["w"], np.full(3, 15, np.float32))
    assert (metrics["train_loss"], metrics["replies"]) == (0.5, 2)
    assert metrics["losses"] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("partition_id", "known"), [(2**20 - 1, True), (2**20, False), (0, True), (-1, False)]
)
def test_a_partition_id_lies_below_2_to_the_20(partition_id: int, known: bool) -> None:
    grid, roster = Federation(moving, {5: 7, 6: partition_id}), ClientRegistry()
    assert roster.find_nodes(grid, 1) == ({7: 5, partition_id: 6} if known else {7: 5})
