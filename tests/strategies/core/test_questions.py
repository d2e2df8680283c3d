"""A question before the round: whom it reaches, what counts as an answer, and what becomes of the others."""

import logging
from dataclasses import dataclass

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from helpers.federation import Federation, answer, play, record, round_of, sent_model
from strategies import FedAvg, Grouped, PseudoGradientStrategy, Question, TooManyFailedRounds
from strategies.shared import protocol

START = record({"w": np.zeros(2)})
MEASURES = ["accuracy"]


@dataclass(kw_only=True, eq=False)
class Worst(PseudoGradientStrategy):
    """Asks the nodes with an even number, and trains the two with the least accuracy."""

    @property
    def question(self) -> Question:
        return Question(("accuracy",))

    def choose_candidates(self, partition_ids: list[int], server_round: int) -> list[int]:
        return [k for k in partition_ids if k % 2 == 0]

    def choose(self, partition_ids: list[int], server_round: int) -> list[int]:
        return sorted(sorted(self.answers, key=lambda k: self.answers[k]["accuracy"])[:2])


def node(partition_id: int, content: RecordDict) -> RecordDict:
    """Answer with the accuracy (k + sum of w) mod 7 over 7."""
    accuracy = (partition_id + float(sent_model(content)["w"].sum())) % 7 / 7
    return answer({"w": sent_model(content)["w"] + 1.0}, 2, accuracy=accuracy)


def asks(content: RecordDict) -> bool:
    return protocol.MEASURES in content.config_records["config"]


def test_candidates_are_asked_at_the_model_before_others_train() -> None:
    grid = Federation(node, 7)
    play(Worst(num_nodes=7), grid, START, (1, 2))
    first, second = grid.requests[:6], grid.requests[6:]
    assert first == [("query.measure", k) for k in (0, 2, 4, 6)] + [("train", 0), ("train", 2)]
    # w is (1, 1): the nodes' accuracies are 2, 4, 6 and 8 mod 7 = 1 sevenths
    assert second == [("query.measure", k) for k in (0, 2, 4, 6)] + [("train", 0), ("train", 6)]


def test_the_message_says_what_is_asked_and_has_the_rounds_settings() -> None:
    seen = []

    def noting(partition_id: int, content: RecordDict) -> RecordDict:
        seen.append(dict(content.config_records["config"]))
        return node(partition_id, content)

    Worst(num_nodes=3).configure_train(5, START, ConfigRecord({"mine": 1}), Federation(noting, 3))
    assert seen == [{"mine": 1, "measures": MEASURES, "server-round": 5}] * 2
    assert Question(("a", "b"), 4).config() == {"measures": ["a", "b"], "measured-examples": 4}


def test_a_round_that_is_configured_again_has_its_answers() -> None:
    grid, strategy = Federation(node, 5), Worst(num_nodes=5)
    first, again = (list(strategy.configure_train(1, START, ConfigRecord(), grid)) for _ in range(2))
    assert [m.metadata.dst_node_id for m in first] == [m.metadata.dst_node_id for m in again]
    assert len(grid.requests) == 3
    strategy.configure_train(2, START, ConfigRecord(), grid)  # another round
    strategy.configure_train(2, record({"w": np.ones(2)}), ConfigRecord(), grid)  # another model
    assert len(grid.requests) == 9


BAD = {
    "NaN": (float("nan"), "sent 'accuracy'=nan"),
    "no number": ([0.5, 0.5], "sent no 'accuracy'"),
    "nothing": (None, "sent no 'accuracy'"),
    "an error": (KeyError("lost"), "KeyError: 'lost'"),
}


@pytest.mark.parametrize("name", BAD)
def test_who_does_not_answer_does_not_train_and_is_named(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    value, line = BAD[name]

    def failing(partition_id: int, content: RecordDict) -> RecordDict:
        reply = node(partition_id, content)
        if partition_id == 2 and asks(content):
            if isinstance(value, Exception):
                raise value
            del reply["metrics"]["accuracy"]
            if value is not None:
                reply["metrics"]["accuracy"] = value
        return reply

    grid, strategy = Federation(failing, 5), Worst(num_nodes=5)
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        play(strategy, grid, START)
    assert grid.trained() == [0, 4]
    assert list(strategy.answers) == [0, 4]
    assert f"round 1: partition 2 is not chosen: {line}" in caplog.text


def test_an_answer_for_another_partition_is_none() -> None:
    def lying(partition_id: int, content: RecordDict) -> RecordDict:
        reply = node(partition_id, content)
        reply["metrics"]["partition-id"] = 0
        return reply

    strategy = Worst(num_nodes=5, query_partitions=True)
    play(strategy, Federation(lying, 5), START)
    assert list(strategy.answers) == [0]


def test_rounds_without_an_answer_end_the_run_with_its_reasons() -> None:
    def silent(partition_id: int, content: RecordDict) -> RecordDict:
        if round_of(content) > 1:
            raise OSError(f"disk {partition_id}")
        return node(partition_id, content)

    strategy = Worst(num_nodes=3, max_failed_rounds=2)
    with pytest.raises(TooManyFailedRounds, match=r"2 rounds in a row failed.*partition 0 OSError: disk 0"):
        strategy.start(Federation(silent, 3), START, num_rounds=5)


def test_a_run_ends_at_once_where_nobody_can_answer() -> None:
    def lacking(partition_id: int, content: RecordDict) -> RecordDict:
        return answer(sent_model(content))

    with pytest.raises(TooManyFailedRounds, match=r"each of the 2 nodes .* sent no 'accuracy': a question"):
        Worst(num_nodes=3).start(Federation(lacking, 3), START, num_rounds=5)
    with pytest.raises(TooManyFailedRounds, match="all 2 nodes failed in round 1 with the same error"):
        Worst(num_nodes=3).start(Federation(node, 3, query=False), START, num_rounds=5)


def test_frozen_parameters_are_sent_once_and_their_bytes_are_the_questions() -> None:
    """A node that has answered has them: its training message lacks them."""

    def keeping(partition_id: int, content: RecordDict) -> RecordDict:
        reply = answer({"w": sent_model(content)["w"]}, accuracy=float(partition_id))
        reply["config"][protocol.FROZEN] = content["config"][protocol.FROZEN]
        return reply

    strategy = Worst(num_nodes=3, frozen_names=("body",))
    model = record({"w": np.zeros(2), "body": np.ones(50)})
    messages = strategy.configure_train(1, model, ConfigRecord(), Federation(keeping, 3))
    requests, answered = strategy.question_messages()
    assert [list(m.content["arrays"]) for m in requests] == [["w", "body"]] * 2
    assert [list(m.content["arrays"]) for m in messages] == [["w"]] * 2
    assert len(answered) == 2


def test_a_strategy_that_asks_nothing_sends_nothing() -> None:
    grid, strategy = Federation(node, 3), FedAvg(num_nodes=3)
    play(strategy, grid, START)
    assert grid.requests == [("train", 0), ("train", 1), ("train", 2)]
    assert strategy.question_messages() == ([], [])


def test_groups_and_empty_questions_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"strategy\.inner=Worst asks nodes before each round about one model"
    ):
        Grouped(inner=Worst(), groups={"a": (0,)})
    with pytest.raises(ValueError, match=r"question\.metrics"):
        Question(())
    with pytest.raises(ValueError, match=r"question\.num_examples=0"):
        Question(("loss",), 0)
