"""A reply counts for the message that it answers, from the node that was asked, once, in its own round."""

import logging
from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.server.superlink.linkstate.utils import (
    create_message_error_unavailable_ins_message,
    create_message_error_unavailable_res_message,
)
from flwr.serverapp.strategy import Strategy

from helpers.federation import Federation, record
from helpers.hostile import HOSTILE, Outcome, difference, node_id, played, start, tampered, trained
from strategies import FedAvg, Grouped, LocalOnly, Scaffold

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "fedavg": FedAvg,
    "scaffold": Scaffold,
    "groups": lambda: Grouped(inner=FedAvg(), groups={"odd": (1, 3), "even": (0, 2)}),
    "local": lambda: LocalOnly(inner=FedAvg()),
}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
Happens = Callable[[list[Message]], list[Message]]


def own(replies: list[Message]) -> list[Message]:
    return [reply for reply in replies if reply.metadata.src_node_id == node_id(HOSTILE)]


def others(replies: list[Message]) -> list[Message]:
    return [reply for reply in replies if reply.metadata.src_node_id != node_id(HOSTILE)]


def forged(reply: Message, **metadata: object) -> Message:
    """Return a reply, doubled, that claims another origin."""
    copied = Message(content=changed(reply.content), metadata=_copied(reply))  # type: ignore[call-overload]
    copied.metadata.__dict__.update({f"_{name}": value for name, value in metadata.items()})
    return copied


def changed(content: RecordDict) -> RecordDict:
    """Return a reply's content with a model that is nobody's."""
    doubled = content.copy()
    model = {name: array.numpy() * 2 for name, array in content.array_records["arrays"].items()}
    doubled["arrays"] = record(model)
    return doubled


def _copied(reply: Message) -> object:
    import copy

    return copy.deepcopy(reply.metadata)


def alone(strategy: Callable[[], Strategy]) -> Outcome:
    return played(strategy(), tampered(None))


def trains(happens: Happens) -> Happens:
    """Let it happen to training replies only."""
    return lambda replies: (
        happens(replies) if replies and replies[0].metadata.message_type == "train" else replies
    )


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "flwr.strategies"]


@every_strategy
@pytest.mark.parametrize("unknown", [False, True], ids=["node unavailable", "message unavailable"])
def test_the_superlinks_error_names_the_node_that_died(
    strategy: Callable[[], Strategy], unknown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def died(replies: list[Message]) -> list[Message]:
        (lost,) = own(replies)
        if unknown:
            error = create_message_error_unavailable_ins_message(lost.metadata.reply_to_message_id, 1)
        else:
            request = _copied(lost)
            request.__dict__["_message_id"] = lost.metadata.reply_to_message_id  # type: ignore[attr-defined]
            error = create_message_error_unavailable_res_message(request, "node_unavail")  # type: ignore[arg-type]
        assert error.metadata.src_node_id == SUPERLINK_NODE_ID
        return [error, *others(replies)]

    expected = alone(strategy)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        assert not difference(played(strategy(), trains(died)), expected)
    named = [line for line in lines(caplog) if "left out" in line]
    assert len(named) == 2
    for server_round, line in enumerate(named, 1):
        assert line.startswith(f"round {server_round}: partition 1 left out: ")
        assert "navailable" in line
        assert "in time" not in line


@every_strategy
def test_a_node_does_not_answer_for_another(strategy: Callable[[], Strategy]) -> None:
    def impersonated(replies: list[Message]) -> list[Message]:
        (lost,) = own(replies)
        return [forged(lost, src_node_id=node_id(2)), *others(replies)]

    assert not difference(played(strategy(), trains(impersonated)), alone(strategy))


@every_strategy
def test_a_node_does_not_fail_for_another(strategy: Callable[[], Strategy]) -> None:
    def denounced(replies: list[Message]) -> list[Message]:
        third = replies[2]
        error = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "boo"), reply_to=third)
        metadata = {
            "reply_to_message_id": third.metadata.reply_to_message_id,
            "src_node_id": node_id(HOSTILE),
        }
        error.metadata.__dict__.update({f"_{name}": value for name, value in metadata.items()})
        error.metadata.__dict__["_group_id"] = third.metadata.group_id
        return [error, *replies]

    assert not difference(played(strategy(), trains(denounced)), played(strategy(), list))


@every_strategy
@pytest.mark.parametrize("turn", [1, -1], ids=["in order", "backwards"])
def test_what_is_sent_twice_counts_once(strategy: Callable[[], Strategy], turn: int) -> None:
    def twice(replies: list[Message]) -> list[Message]:
        return [reply for reply in replies for _ in range(2)][::turn]

    assert not difference(played(strategy(), trains(twice)), played(strategy(), list))


@every_strategy
def test_the_first_of_two_different_answers_counts(strategy: Callable[[], Strategy]) -> None:
    def corrected(replies: list[Message]) -> list[Message]:
        return [*replies, *map(forged, own(replies))]

    assert not difference(played(strategy(), trains(corrected)), played(strategy(), list))


@every_strategy
def test_a_late_answer_does_not_count_in_a_later_round(strategy: Callable[[], Strategy]) -> None:
    kept: list[Message] = []

    def late(replies: list[Message]) -> list[Message]:
        before, kept[:] = list(kept), own(replies)
        return [*before, *others(replies)]

    assert not difference(played(strategy(), trains(late), rounds=3), played(strategy(), tampered(None), 3))


def test_where_messages_have_no_id_the_sender_counts() -> None:
    """No grid of Flower's is one, but a user's own may be."""
    strategy, grid = FedAvg(), Federation(trained, 3)
    messages = list(strategy.configure_train(1, record(start()), ConfigRecord(), grid))
    replies = grid.send_and_receive(messages)
    for message in messages:
        message.metadata.__dict__["_message_id"] = ""
    for reply in replies:
        reply.metadata.__dict__["_reply_to_message_id"] = ""
    _, metrics = strategy.aggregate_train(1, replies)
    assert metrics["replies"] == 3
    assert np.isfinite(metrics["step-size"])
