"""Nodes that fail while digits are trained: left out, named, counted, and the round goes on."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord

from baselines.grids import inline
from helpers.runs import App, curve, metrics_in, played
from strategies import TooManyFailedRounds

SETTING = "num_nodes=4 rounds=2 model=softmax partitioner=iid"
BAD = 2  # the partition that fails

Spoil = Callable[[Message], None]


def spoiling(spoil: Spoil) -> Callable[[App], App]:
    """Return what makes the app of one partition spoil its answers to a training message."""

    def wrap(app: App) -> App:
        def spoilt(message: Message, context: Context) -> Message:
            reply = app(message, context)
            if message.metadata.message_type == "train" and context.node_config["partition-id"] == BAD:
                spoil(reply)
            return reply

        return spoilt

    return wrap


def fail(reply: Message) -> None:
    raise MemoryError("out of memory")


def with_array(name: str, values: np.ndarray) -> Spoil:
    def spoil(reply: Message) -> None:
        reply.content["arrays"] = ArrayRecord({**reply.content["arrays"], name: Array(values)})

    return spoil


def with_value(value: float) -> Spoil:
    def spoil(reply: Message) -> None:
        weight = np.zeros((10, 64), np.float32)
        weight[3, 5] = value
        with_array("fc.weight", weight)(reply)

    return spoil


def lacking(name: str) -> Spoil:
    def spoil(reply: Message) -> None:
        arrays = reply.content["arrays"]
        reply.content["arrays"] = ArrayRecord({key: arrays[key] for key in arrays if key != name})

    return spoil


def with_examples(count: object) -> Spoil:
    def spoil(reply: Message) -> None:
        metrics = dict(reply.content["metrics"])
        metrics.pop("num-examples")
        count_of_examples = {} if count is None else {"num-examples": count}
        reply.content["metrics"] = MetricRecord({**metrics, **count_of_examples})

    return spoil


def examples_as_text(reply: Message) -> None:
    with_examples(None)(reply)
    reply.content["more"] = ConfigRecord({"num-examples": "many"})


def without_arrays(reply: Message) -> None:
    del reply.content["arrays"]


def leave(reply: Message) -> None:
    raise SystemExit(3)


def fail_in_two_lines(reply: Message) -> None:
    raise ValueError("two\n  lines")


FAILURES = {
    "raises": (fail, "MemoryError: out of memory"),
    "leaves": (leave, "SystemExit: 3"),
    "raises in two lines": (fail_in_two_lines, "ValueError: two lines"),
    "NaN": (with_value(float("nan")), "sent NaN or infinite values"),
    "infinity": (with_value(float("-inf")), "sent NaN or infinite values"),
    "broadcastable shape": (
        with_array("fc.bias", np.ones(1, np.float32)),
        "'fc.bias' has shape (1,), the model's (10,)",
    ),
    "other shape": (
        with_array("fc.weight", np.ones((64, 10), np.float32)),
        "'fc.weight' has shape (64, 10), the model's (10, 64)",
    ),
    "whole numbers": (
        with_array("fc.bias", np.ones(10, np.int8)),
        "sent unreadable arrays ('fc.bias' holds int8, the model's float32)",
    ),
    "complex numbers": (
        with_array("fc.bias", np.ones(10, np.complex64)),
        "sent unreadable arrays ('fc.bias' holds complex64, the model's float32)",
    ),
    "missing name": (lacking("fc.bias"), "lacks 'fc.bias' of the model's arrays"),
    "extra name": (with_array("head", np.ones(1)), "has 'head', which the model does not have"),
    "no num-examples": (with_examples(None), "sent no 'num-examples'"),
    "num-examples zero": (with_examples(0), "trained on no examples"),
    "num-examples negative": (
        with_examples(-5),
        "sent num-examples=-5, expected a number from 0 to 9.01e+15",
    ),
    "num-examples NaN": (
        with_examples(float("nan")),
        "sent num-examples=nan, expected a number from 0 to 9.01e+15",
    ),
    "num-examples infinite": (
        with_examples(float("inf")),
        "sent num-examples=inf, expected a number from 0 to 9.01e+15",
    ),
    "num-examples a list": (with_examples([1, 2]), "sent no 'num-examples'"),
    "num-examples a string": (examples_as_text, "sent no 'num-examples'"),
    "no arrays": (without_arrays, "sent no arrays"),
}


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Return the metrics of the three sound nodes alone."""
    return played(f"{SETTING} +strategy.members=[0,1,3]", tmp_path_factory.mktemp("three"))


def assert_left_out(rows: pd.DataFrame, three_nodes: pd.DataFrame) -> None:
    counted = rows.metric == "failed"
    assert rows[counted].value.tolist() == [1.0, 1.0]
    pd.testing.assert_frame_equal(
        rows[~counted], three_nodes[three_nodes.metric != "failed"], check_exact=True
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(("spoil", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_bad_reply_is_left_out_and_the_rest_goes_on(
    spoil: Spoil,
    reason: str,
    three_nodes: pd.DataFrame,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        rows = played(SETTING, tmp_path, spoiling(spoil))
    assert_left_out(rows, three_nodes)
    messages = [record.getMessage() for record in caplog.records if record.name == "flwr.strategies"]
    assert messages == [f"round {t}: partition {BAD} left out: {reason}" for t in (1, 2)]


@pytest.mark.slow
def test_a_late_reply_is_left_out(
    three_nodes: pd.DataFrame,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(inline, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def dawdle(reply: Message) -> None:
        clock.now += 3601  # timeout=3600

    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        rows = played(SETTING, tmp_path, spoiling(dawdle))
    assert_left_out(rows, three_nodes)
    messages = [record.getMessage() for record in caplog.records if record.name == "flwr.strategies"]
    assert messages == [f"round {t}: partition {BAD} left out: did not answer in time" for t in (1, 2)]


@pytest.mark.slow
def test_below_min_replies_the_model_stays(tmp_path: Path) -> None:
    fails = iter([True, True, False])

    def fail_twice(reply: Message) -> None:
        if next(fails):
            fail(reply)

    rows = played(f"{SETTING} rounds=3 min_replies=4", tmp_path, spoiling(fail_twice))
    losses = curve(rows, "test", "loss")
    assert len(losses) == 4
    assert len(set(losses[:3])) == 1
    assert losses[3] < losses[2]
    lost = (rows.split == "train") & (rows["round"] < 3)
    assert set(rows[lost].metric) == {"replies", "failed"}


def failing(*partitions: int) -> Callable[[App], App]:
    """Return what makes the app of these partitions raise, in training."""

    def wrap(app: App) -> App:
        def failed(message: Message, context: Context) -> Message:
            if (
                message.metadata.message_type == "train"
                and context.node_config["partition-id"] in partitions
            ):
                raise KeyError("no such column")
            return app(message, context)

        return failed

    return wrap


@pytest.mark.slow
def test_the_same_error_everywhere_in_round_1_ends_the_run_with_one_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "flwr"),
        pytest.raises(
            TooManyFailedRounds, match=r"all 4 nodes failed in round 1 .* KeyError: 'no such column'"
        ),
    ):
        played(SETTING, tmp_path, failing(0, 1, 2, 3))
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.count("Traceback (most recent call last):") == 1
    assert "in failed" in message


@pytest.mark.slow
def test_one_node_that_gives_an_answer_keeps_it_going(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "flwr"):
        rows = played(SETTING, tmp_path, failing(0, 1, 3))
    assert curve(rows, "train", "replies") == [1, 1]
    *messages, last = [record.getMessage() for record in caplog.records]
    assert len(messages) == 6
    assert all(line.endswith("KeyError: 'no such column'") for line in messages)
    assert last.endswith(": partition 0 (0 of 2), partition 1 (0 of 2), partition 3 (0 of 2)")


@pytest.mark.slow
def test_too_many_failed_rounds_end_the_run_with_everything_on_disk(tmp_path: Path) -> None:
    with pytest.raises(
        TooManyFailedRounds, match="2 rounds in a row failed: 3 sound replies, min_replies=4"
    ):
        played(f"{SETTING} rounds=9 min_replies=4 max_failed_rounds=2", tmp_path, spoiling(fail))
    rows = metrics_in(tmp_path)
    assert set(rows["round"]) == {0, 1}
    environment = (tmp_path / "environment.json").read_text()
    assert '"status": "failed: 2 rounds in a row failed' in environment
    assert (tmp_path / "config.yaml").is_file()
    assert (tmp_path / "figures" / "metrics.png").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["weight_erosion", "scaffold", "local", "fedadam mask=agreement"])
def test_other_strategies_leave_it_out_too(strategy: str, tmp_path: Path) -> None:
    overrides = f"{SETTING} max_failed_rounds=1 strategy={strategy}"
    rows = played(overrides, tmp_path, spoiling(with_value(float("nan"))))
    assert curve(rows, "train", "failed") == [1.0, 1.0]
    assert np.isfinite(curve(rows, "test", "loss")).all()
