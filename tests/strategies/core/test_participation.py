"""How many nodes a round waits for, who judges, and what their tests say together."""

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from helpers.federation import Federation, answer, play, record, sent_model
from strategies import FedAvg

MODEL = record({"w": np.zeros(2)})
LOSSES, TESTS = (1.0, 4.0, 7.0), (1, 3, 0)


def node(partition_id: int, content: RecordDict) -> RecordDict:
    return answer(sent_model(content), TESTS[partition_id % 3], loss=LOSSES[partition_id % 3])


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"num_nodes": 3, "nodes_per_round": 2}, (3, 1)),
        ({"num_nodes": 1}, (1, 1)),
        ({"nodes_per_round": 3}, (3, 2)),
        ({"nodes_per_round": 1}, (2, 2)),
        ({"min_replies": 3}, (3, 2)),
        ({"members": (0,)}, (1, 1)),
        ({"members": (0, 1, 2)}, (2, 2)),
        ({}, (2, 2)),
    ],
    ids=str,
)
def test_the_first_round_waits_for_its_nodes_and_the_others_for_one(
    settings: dict[str, Any], first: tuple[int, int]
) -> None:
    """How many they wait for, and with how many they begin at least."""
    count = settings.get("num_nodes", 3)
    grid, strategy, wanted = Federation(node, count), FedAvg(**settings), []
    known = strategy.registry.find_nodes

    def noted(grid: Federation, count: int, least: int = 1) -> dict[int, int]:
        wanted.append((count, least))
        return known(grid, count, least)

    strategy.registry.find_nodes = noted  # type: ignore[assignment,method-assign]
    play(strategy, grid, MODEL, (1, 2))
    assert wanted == [first, (1, 1)]


def test_a_node_that_is_alone_does_not_begin_unless_it_is_said_to_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alone = Federation(node, 1)
    with pytest.raises(
        TimeoutError, match=r"1 node has said who it is within 0 s.*: set num_nodes=1 to begin"
    ):
        play(FedAvg(node_timeout=0.2), alone, MODEL)
    assert not alone.requests
    assert "waiting for 2 nodes, of which 1 are known so far" in caplog.text
    play(FedAvg(num_nodes=1), alone, MODEL)
    assert alone.trained() == [0]


def test_the_second_node_is_waited_for() -> None:
    class Late(Federation):
        def get_node_ids(self) -> list[int]:
            self.polled = getattr(self, "polled", 0) + 1
            return super().get_node_ids()[: 1 if self.polled < 4 else 2]

    grid = Late(node, 2)
    play(FedAvg(), grid, MODEL)
    assert grid.trained() == [0, 1]


def judged(strategy: FedAvg, size: int = 3, without: Iterable[int] = ()) -> dict[str, float] | None:
    """Return what an evaluation of nodes with 1, 3, 0, 1, 3, ... test examples says."""
    grid = Federation(node, size)
    messages = list(strategy.configure_evaluate(4, MODEL, ConfigRecord({"more": 5}), grid))
    assert all(m.content["config"] == {"more": 5, "server-round": 4} for m in messages)
    replies: list[Message] = grid.send_and_receive(messages)
    kept = [reply for k, reply in enumerate(replies) if k not in without]
    metrics = strategy.aggregate_evaluate(4, kept)
    return None if metrics is None else dict(metrics)  # type: ignore[arg-type]


def test_the_mean_is_over_test_examples() -> None:
    assert judged(FedAvg()) == {"loss": (1 * 1 + 3 * 4) / 4}


def test_judges_alone_are_asked() -> None:
    assert judged(FedAvg(evaluators=(1,))) == {"loss": 4}
    assert judged(FedAvg(evaluators=(2,))) is None  # it has no test examples
    assert judged(FedAvg(members=(0, 2))) == {"loss": 1}
    assert judged(FedAvg(federated_evaluation=False)) is None


def test_a_judge_that_does_not_answer_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        assert judged(FedAvg(), without=(1,)) == {"loss": 1}
    (line,) = [r.getMessage() for r in caplog.records]
    assert line == "round 4: partition 1 did not evaluate: did not answer in time"


@pytest.mark.parametrize(("rounds", "most"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_a_short_run_fails_within_its_rounds(rounds: int, most: int) -> None:
    strategy = FedAvg(max_failed_rounds=3)
    strategy.set_num_rounds(rounds)
    assert strategy.max_failed_rounds == most


def test_a_state_that_is_loaded_stays_the_callers() -> None:
    """Two strategies go on from one state; what the first counts is none of the second's."""
    reply = answer({"w": np.ones(2)}, **{"partition-id": 0})
    before, first, second = (FedAvg(num_nodes=1) for _ in range(3))
    play(before, Federation(lambda *_: reply, 1), MODEL, (1,))
    state = before.state_dict()
    for strategy in (first, second):
        strategy.load_state_dict(state)
    play(first, Federation(lambda *_: reply, 1), MODEL, (2, 3))
    assert first.registry.contribution_log.counts[0]["updates"] == 3
    assert second.registry.contribution_log.counts[0]["updates"] == 1
