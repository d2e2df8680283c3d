"""Sites are known by their names, and get a number each."""

import logging
from functools import partial

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

import strategies
from helpers.federation import Federation, answer, play, record, sent_model
from strategies.shared import protocol

pytestmark = pytest.mark.runtime
FedAvg = partial(strategies.FedAvg, query_partitions=True)
MODEL = record({"w": np.zeros(3, np.float32)})


class Sites(Federation):
    """A grid of sites, {node id: name}; ``refused`` says why, ``numbers`` what each was told."""

    def __init__(self, names: dict[int, str], answers_for: int | None = None) -> None:
        super().__init__(lambda k, content: content, dict.fromkeys(names, 0))
        self.names, self.answers_for = names, answers_for
        self.refused: dict[int, str] = {}
        self.numbers: dict[str, int] = {}

    def get_node_ids(self) -> list[int]:
        return list(self.names)

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        if message.metadata.message_type == MessageType.QUERY:
            config = ConfigRecord({protocol.SITE: self.names[node]})
            if node in self.refused:
                config[protocol.REFUSED] = self.refused[node]
            return Message(RecordDict({protocol.CONFIG: config}), reply_to=message)
        number = int(message.content[protocol.CONFIG][protocol.PARTITION_ID])  # type: ignore[arg-type]
        self.numbers[self.names[node]] = number
        told_for = number if self.answers_for is None else self.answers_for
        moved = {name: values + 1 for name, values in sent_model(message.content).items()}
        return Message(answer(moved, **{protocol.PARTITION_ID: told_for}), reply_to=message)


def numbers(strategy: strategies.FedAvg, grid: Sites) -> dict[str, int]:
    grid.numbers.clear()
    play(strategy, grid, MODEL)
    return grid.numbers


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_sites_are_numbered_by_name_and_keep_their_numbers(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = FedAvg(), Sites({7: "south", 9: "north"})
    assert numbers(strategy, grid) == {"north": 0, "south": 1}
    grid.names[3] = "east"
    assert numbers(strategy, grid) == {"north": 0, "south": 1, "east": 2}
    del grid.names[9]
    assert numbers(strategy, grid) == {"south": 1, "east": 2}
    assert lines(caplog) == ["site north is no longer connected: continuing without it"]
    grid.names[4] = "north"
    assert numbers(strategy, grid) == {"north": 0, "south": 1, "east": 2}
    assert lines(caplog)[1:] == [
        "site north was node 9 and is node 4 now: with authenticated nodes, its key has changed"
    ]
    resumed = FedAvg(num_nodes=3, node_timeout=0.1)
    play(resumed, Sites({1: "north"}), MODEL)
    resumed.load_state_dict(strategy.state_dict())
    assert numbers(resumed, Sites({1: "north", 2: "east"})) == {"north": 0, "east": 2}


def test_the_newcomer_of_two_with_one_name_is_not_asked(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = FedAvg(num_nodes=1), Sites({7: "north"})
    numbers(strategy, grid)
    grid.names[8] = "north"
    numbers(strategy, grid)
    assert strategy._recipients == {0: 7}
    assert lines(caplog) == [
        "node 8 says that it is site north, as node 7 does, and is not asked: give each its own"
    ]


def test_a_site_that_refuses_takes_part_once_it_is_corrected(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = FedAvg(node_timeout=0.3), Sites({7: "south", 8: "north", 9: "", 5: "west"})
    grid.refused = {7: "the labels\n['x'] are unknown", 9: "the site has no name"}
    assert numbers(strategy, grid) == {"north": 0, "west": 1}
    assert numbers(strategy, grid) == {"north": 0, "west": 1}
    assert lines(caplog) == [  # once each
        "site south takes no part: the labels ['x'] are unknown",
        "site without a name takes no part: the site has no name",
    ]
    grid.refused.pop(7)
    assert numbers(strategy, grid) == {"north": 0, "south": 2, "west": 1}


def test_where_all_that_are_connected_refuse_the_run_waits_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = Sites({7: "south", 8: "north"})
    grid.refused = dict.fromkeys(grid.names, "refused by the site's file: label")
    with caplog.at_level(logging.INFO, "flwr.strategies"), pytest.raises(TimeoutError) as error:
        play(FedAvg(num_nodes=2, node_timeout=0.6), grid, MODEL)
    assert str(error.value) == (
        "no node takes part within 1 s, of 2 that are connected; "
        "site south takes no part: refused by the site's file: label; "
        "site north takes no part: refused by the site's file: label"
    )
    assert [line for record in caplog.records if "waiting" in (line := record.getMessage())] == [  # once
        "waiting for 2 nodes, of which 0 are known so far, for 1 s at most (node_timeout); those "
        "that refuse are asked again"
    ]


def test_a_site_whose_data_go_bad_is_told_so_and_not_asked_to_train(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its node stays connected all the time."""
    strategy, grid = FedAvg(), Sites({7: "a", 8: "b"})
    assert numbers(strategy, grid) == {"a": 0, "b": 1}
    grid.answers_for = 0  # b's answers are no good
    numbers(strategy, grid)
    grid.answers_for, grid.refused[8] = None, "there is no data"
    assert numbers(strategy, grid) == {"a": 0}
    grid.refused.clear()
    assert numbers(strategy, grid) == {"a": 0, "b": 1}
    assert lines(caplog) == [
        "round 1: site b left out: answered for partition 0",
        "site b takes no part: there is no data",
    ]


def test_more_sites_than_nodes_are_not_asked(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = FedAvg(num_nodes=2), Sites({7: "a", 8: "b"})
    numbers(strategy, grid)
    grid.names[9] = "c"
    assert numbers(strategy, grid) == {"a": 0, "b": 1}
    assert lines(caplog) == ["site c takes no part: num_nodes=2 others came before"]


def test_a_reply_for_another_one_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    strategy = FedAvg()
    numbers(strategy, Sites({7: "a", 8: "b"}, answers_for=0))
    assert lines(caplog) == ["round 1: site b left out: answered for partition 0"]
    assert strategy.participation_counts() == {
        "site a": {"updates": 1, "left_out": 0, "examples": 1},
        "site b": {"updates": 0, "left_out": 1, "examples": 0},
    }
