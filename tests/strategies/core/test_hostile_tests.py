"""Hostile answers to an evaluation and to the query for partitions: the others' count alone."""

import logging
import math
from collections.abc import Callable
from functools import partial

import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from helpers.federation import Federation, record
from helpers.hostile import Tamper, difference, played, start, tampered, tells, trained, unchecked, without
from strategies import FedAvg, Grouped, LocalOnly, WeightErosion, WeightErosionForAll

pytestmark = pytest.mark.filterwarnings("error")
TESTS: dict[str, tuple[Tamper, str]] = {
    "loss nan": (tells(loss=float("nan")), "sent 'loss'=nan, expected a number"),
    "loss inf": (tells(loss=float("inf")), "sent 'loss'=inf, expected a number"),
    "loss missing": (tells(loss=None), "sent no 'loss', as most do"),
    "loss a list": (tells(loss=[0.5]), "sent no 'loss', as most do"),
    "loss a text": (unchecked("loss", "0.5"), "sent no 'loss', as most do"),
    "accuracy nan": (tells(accuracy=float("nan")), "sent 'accuracy'=nan, expected a number"),
    "accuracy 10**400": (tells(accuracy=10**400), "sent a 'accuracy' of 1329 bits"),
    "accuracy a truth": (unchecked("accuracy", True), "sent no 'accuracy', as most do"),
    "examples nan": (tells(num_examples=float("nan")), "sent num-examples=nan"),
    "examples -1": (tells(num_examples=-1), "sent num-examples=-1"),
    "examples 1e308": (tells(num_examples=1e308), "sent num-examples=1e+308"),
    "examples missing": (tells(num_examples=None), "sent no 'num-examples'"),
    "no metrics": (without("metrics"), "sent no 'num-examples'"),
}
SEVERAL: dict[str, Callable[[], Strategy]] = {
    "groups": lambda: Grouped(inner=FedAvg(), groups={"odd": (1, 3), "even": (0, 2)}),
    "local": lambda: LocalOnly(inner=FedAvg()),
    "erosion for all": lambda: WeightErosionForAll(inner=WeightErosion()),
}


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "flwr.strategies"]


@pytest.mark.parametrize(("tamper", "why"), TESTS.values(), ids=TESTS)
def test_a_test_that_is_none_is_left_out(
    tamper: Tamper, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    alone = played(FedAvg(), tampered(None, "evaluate"))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        outcome = played(FedAvg(), tampered(tamper, "evaluate"))
    assert not difference(outcome, alone)
    assert {"test loss", "test accuracy"} < outcome[0][1].keys()
    lines = reasons(caplog)
    assert [line.partition(": sent ")[0] for line in lines] == [
        "round 1: partition 1 did not evaluate",
        "round 2: partition 1 did not evaluate",
    ]
    assert all(why in line and "\n" not in line for line in lines)


@pytest.mark.parametrize("strategy", SEVERAL.values(), ids=SEVERAL)
@pytest.mark.parametrize("which", ["loss nan", "examples 1e308", "no metrics"])
def test_of_several_models_too(strategy: Callable[[], Strategy], which: str) -> None:
    """A group's mean counts with the nodes whose tests count, not with all that sent something."""
    alone = played(strategy(), tampered(None, "evaluate"))
    assert not difference(played(strategy(), tampered(TESTS[which][0], "evaluate")), alone)


VOID: dict[str, Callable[[], Strategy]] = {"one": FedAvg, **SEVERAL}


@pytest.mark.parametrize("strategy", VOID.values(), ids=VOID)
@pytest.mark.parametrize(("count", "is_void"), [(1, False), (2, True), (4, True)])
def test_a_foreign_node_may_give_a_model_of_nan_an_accuracy(
    count: int, is_void: bool, strategy: Callable[[], Strategy]
) -> None:
    """Where half or more of four nodes have no loss, whatever their models, no measure has a mean."""

    def without_loss(replies: list[Message]) -> list[Message]:
        for reply in replies:
            if reply.metadata.message_type == "evaluate" and reply.metadata.src_node_id < 100 + count:
                tells(loss=float("nan"), accuracy=0.885)(reply.content)
        return replies

    metrics = played(strategy(), without_loss)[-1][1]
    assert math.isnan(metrics["test loss"]) == math.isnan(metrics["test accuracy"]) == is_void


def test_a_node_without_test_data_is_no_hostile_one(caplog: pytest.LogCaptureFixture) -> None:
    empty = tells(num_examples=0, loss=None, accuracy=None)
    outcome = played(FedAvg(), tampered(empty, "evaluate"))
    assert not difference(outcome, played(FedAvg(), tampered(None, "evaluate")))
    assert all("did not answer in time" in line for line in reasons(caplog))


PARTITIONS: dict[str, tuple[object, str]] = {
    "missing": (None, "no partition id in its answer"),
    "negative": (-1, "partition-id is -1, expected a whole number from 0 to 1048575"),
    "a fraction": (1.0, "partition-id is 1.0, expected a whole number"),
    "nan": (float("nan"), "partition-id is nan, expected a whole number"),
    "too large": (2**31 - 1, "partition-id is 2147483647, expected a whole number"),
    "far too large": (10**5000, "partition-id is far too large, expected a whole number"),
    "a list": ([1], "partition-id is [1], expected a whole number"),
}


class Lying(Federation):
    """Node 101 tells another partition than it holds."""

    tells: object = None

    def _answer(self, message: Message) -> Message:
        reply = super()._answer(message)
        if message.metadata.message_type == "query" and message.metadata.dst_node_id == 101:
            metrics = {} if self.tells is None else {"partition-id": self.tells}
            reply.content = RecordDict({"metrics": MetricRecord(metrics)})  # type: ignore[dict-item]
        return reply


@pytest.mark.parametrize(("claim", "why"), PARTITIONS.values(), ids=PARTITIONS)
@pytest.mark.parametrize("strategy", [partial(FedAvg, query_partitions=True), WeightErosion])
def test_a_partition_that_is_none_is_never_asked(
    strategy: Callable[[], FedAvg], claim: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    grid, server, arrays = Lying(trained, 4), strategy(), record(start())
    grid.tells = claim
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        for server_round in (1, 2):
            list(server.configure_train(server_round, arrays, ConfigRecord(), grid))
            assert server._recipients == {0: 100, 2: 102, 3: 103}
    (line,) = reasons(caplog)
    assert line.startswith(f"node 101 does not say which partition it holds, and is asked again: {why}")


def test_an_answer_to_the_query_in_anothers_name_is_nobodys() -> None:
    class Forging(Federation):
        def send_and_receive(self, messages, *, timeout=None):  # type: ignore[no-untyped-def]
            replies = super().send_and_receive(messages, timeout=timeout)
            for reply in replies:
                if reply.metadata.src_node_id == 101 and reply.metadata.message_type == "query":
                    reply.metadata.__dict__["_src_node_id"] = 100
            return replies

    strategy = FedAvg(query_partitions=True)
    list(strategy.configure_train(1, record(start()), ConfigRecord(), Forging(trained, 4)))
    assert strategy._recipients == {0: 100, 2: 102, 3: 103}


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", VOID.values(), ids=VOID)
def test_the_mean_of_ones_is_one(strategy: Callable[[], Strategy]) -> None:
    """Whatever the shares of the nodes, which may add up to a little less."""
    for examples in range(1, 30):

        def right(replies: list[Message], examples: int = examples) -> list[Message]:
            for reply in replies:
                if reply.metadata.message_type == "evaluate":
                    node = reply.metadata.src_node_id - 99
                    tells(accuracy=1.0, num_examples=examples * node + node % 3)(reply.content)
            return replies

        assert {metrics["test accuracy"] for _, metrics in played(strategy(), right)} == {1.0}


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", SEVERAL.values(), ids=SEVERAL)
def test_a_list_of_several_models_is_averaged_element_by_element(strategy: Callable[[], Strategy]) -> None:
    """Rounding of one element takes none of the others with it."""

    for examples in range(1, 30):
        counts = [examples * (node + 1) + (node + 1) % 3 for node in range(4)]

        def listing(replies: list[Message], counts: list[int] = counts) -> list[Message]:
            for reply in replies:
                if reply.metadata.message_type == "evaluate":
                    node = reply.metadata.src_node_id - 100
                    tells(own=[1.0, float(node)], num_examples=counts[node])(reply.content)
            return replies

        own = played(strategy(), listing)[-1][1]["test own"]
        mean = sum(node * count for node, count in enumerate(counts)) / sum(counts)
        assert own == pytest.approx([1, mean])
