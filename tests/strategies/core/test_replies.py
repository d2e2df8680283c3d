"""Replies that are not what they should be."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict

from helpers.federation import Federation, answer, assert_same, model_in, play, record, sent_model
from strategies import FedAvg, InverseVariance, TooManyFailedRounds, WeightErosion

MODEL = record({"w": np.zeros((2, 2), np.float32), "steps": np.array(0)})


def array(values: np.ndarray, **claims: object) -> Array:
    """Return an array that claims to be something else than its bytes say."""
    honest = Array(values)
    fields = {"dtype": honest.dtype, "shape": honest.shape, "stype": honest.stype, "data": honest.data}
    return Array(**(fields | claims))  # type: ignore[arg-type]


def objects() -> Array:
    import io

    stream = io.BytesIO()
    np.save(stream, np.array([None] * 4, dtype=object).reshape(2, 2), allow_pickle=True)
    return Array("float32", (2, 2), "numpy.ndarray", stream.getvalue())


CORRUPT = {
    "fewer values than claimed": array(np.ones(1, np.float32), shape=(2, 2)),
    "cut short": array(np.ones((2, 2), np.float32), data=Array(np.ones((2, 2), np.float32)).data[:-3]),
    "only a header": array(np.ones((2, 2), np.float32), data=Array(np.ones((2, 2), np.float32)).data[:64]),
    "empty": array(np.ones((2, 2), np.float32), data=b""),
    "no NPY bytes": array(np.ones((2, 2), np.float32), data=b"these are not numbers, they are words"),
    "no header": array(
        np.ones((2, 2), np.float32),
        data=Array(np.ones((2, 2), np.float32)).data.replace(b"(2, 2)", b"(2, , "),
    ),
    "python objects": objects(),
    "words": array(np.full((2, 2), "one")),
}


@pytest.mark.parametrize("corrupt", CORRUPT.values(), ids=CORRUPT)
def test_corrupt_bytes_are_left_out(corrupt: Array, caplog: pytest.LogCaptureFixture) -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        reply = answer({**sent_model(content), "w": np.full((2, 2), partition_id, np.float32)})
        if partition_id == 1:
            reply["arrays"] = ArrayRecord({"w": corrupt, "steps": Array(np.array(1))})
        return reply

    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        ((new, metrics),) = play(FedAvg(), Federation(node, 3), MODEL)
    np.testing.assert_array_equal(model_in(new)["w"], np.ones((2, 2)))  # the mean of 0 and 2
    assert (metrics["replies"], metrics["failed"]) == (2, 1)
    (line,) = [r.getMessage() for r in caplog.records]
    assert line.startswith("round 1: partition 1 left out: ")
    assert "\n" not in line


@pytest.mark.parametrize("sent", [float("nan"), float("inf"), -1.0, None], ids=str)
def test_a_variance_that_is_none_is_left_out(sent: float | None, caplog: pytest.LogCaptureFixture) -> None:
    """One such number would be in every weight."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        variance = sent if partition_id == 1 else 2.0
        metrics = {} if variance is None else {"gradient-variance": variance}
        return answer({**sent_model(content), "w": np.full((2, 2), partition_id, np.float32)}, **metrics)

    ((new, metrics),) = play(FedAvg(weighting=InverseVariance()), Federation(node, 3), MODEL)
    np.testing.assert_array_equal(model_in(new)["w"], np.ones((2, 2)))  # the mean of 0 and 2
    assert (metrics["replies"], metrics["failed"]) == (2, 1)
    assert "partition 1 left out: sent" in caplog.text


def test_a_variance_of_zero_counts_as_the_others_median() -> None:
    """A node that took a single step does not know its variance; it is not the surest of all."""
    variances = {0: 1.0, 1: 0.0, 2: 2.0, 3: 4.0}

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        model = {**sent_model(content), "w": np.full((2, 2), partition_id, np.float32)}
        return answer(model, **{"gradient-variance": variances[partition_id]})

    ((new, _),) = play(FedAvg(weighting=InverseVariance()), Federation(node, 4), MODEL)
    precision = np.array([1, 1 / 2, 1 / 2, 1 / 4])
    expected = (precision @ np.arange(4)) / precision.sum()
    np.testing.assert_allclose(model_in(new)["w"], expected, rtol=1e-6)
    variances |= dict.fromkeys(variances, 0.0)
    ((new, _),) = play(FedAvg(weighting=InverseVariance()), Federation(node, 4), MODEL)
    np.testing.assert_allclose(model_in(new)["w"], 1.5)


def test_a_buffer_that_is_not_a_number_is_left_out_too() -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        mean = np.full(2, np.nan if partition_id == 1 else 1, np.float32)
        return answer({"w": np.ones(2, np.float32), "running_mean": mean})

    start = record({"w": np.zeros(2, np.float32), "running_mean": np.zeros(2, np.float32)})
    ((new, metrics),) = play(FedAvg(), Federation(node, 3), start)
    assert metrics["failed"] == 1
    np.testing.assert_array_equal(model_in(new)["running_mean"], np.ones(2))


def test_another_precision_and_byte_order_are_read_right() -> None:
    values = np.array([[1.5, 2.5], [3.5, 4.5]])

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        kinds = [values, values.astype(np.float16), values.astype(">f4"), np.asfortranarray(values)]
        return answer({"w": kinds[partition_id], "steps": np.array(partition_id, np.int32)})

    ((new, _),) = play(FedAvg(), Federation(node, 4), MODEL)
    np.testing.assert_array_equal(model_in(new)["w"], values.astype(np.float32))
    assert new["steps"].dtype == "int64"
    assert model_in(new)["steps"] == 2  # 1.5, rounded to even


def test_answers_nobody_asked_for_are_ignored() -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({**sent_model(content), "w": np.full((2, 2), partition_id, np.float32)})

    everyone = Federation(node, 4)
    strangers = play(FedAvg(), everyone, MODEL, order=lambda replies: replies)
    extra: list[Message] = []
    few = FedAvg(members=(0, 1))

    def with_strangers(replies: list[Message]) -> list[Message]:
        request = Message(RecordDict({"arrays": MODEL}), 103, "train")
        extra.append(everyone.send_and_receive([request])[0])
        return [*extra, *replies]

    ((new, metrics),) = play(few, everyone, MODEL, order=with_strangers)
    assert metrics["replies"] == 2
    np.testing.assert_array_equal(model_in(new)["w"], np.full((2, 2), 0.5))
    np.testing.assert_array_equal(model_in(strangers[0][0])["w"], np.full((2, 2), 1.5))


def test_a_node_cannot_overwrite_what_the_server_reports() -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer(sent_model(content), **{"step-size": 99.0, "replies": 99, "failed": 99, "loss": 0.5})

    ((_, metrics),) = play(FedAvg(), Federation(node, 2), MODEL)
    theirs = {"node-step-size": 99.0, "node-replies": 99.0, "node-failed": 99.0}
    assert dict(metrics) == {"replies": 2, "failed": 0, "step-size": 1.0, "loss": 0.5} | theirs


def test_metrics_are_means_over_examples_of_what_all_nodes_sent() -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        own = {"loss": (1.0, 4.0)[partition_id], f"only-{partition_id}": 1.0, "partition-id": partition_id}
        return answer(sent_model(content), (1, 3)[partition_id], **own)

    ((_, metrics),) = play(FedAvg(), Federation(node, 2), MODEL)
    assert dict(metrics) == {"replies": 2, "failed": 0, "step-size": 1.0, "loss": 3.25}


def flaky(sound_rounds: set[int]) -> Federation:
    """Return two nodes of which one is sound, and the other in some rounds only."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        if partition_id and content.config_records["config"]["server-round"] not in sound_rounds:
            raise RuntimeError("disk full")
        return answer({**sent_model(content), "w": sent_model(content)["w"] + 1})

    return Federation(node, 2)


def test_below_min_replies_the_model_and_all_state_stay() -> None:
    strategy = FedAvg(min_replies=2, average_last=2)
    (first, second, third) = play(strategy, flaky({1, 3}), MODEL, (1, 2, 3))
    assert_same(first[0], second[0])
    assert dict(second[1]) == {"replies": 1, "failed": 1}
    np.testing.assert_array_equal(model_in(third[0])["w"], np.full((2, 2), 2, np.float32))
    (judged,) = strategy.models_to_evaluate(third[0]).values()
    np.testing.assert_array_equal(model_in(judged)["w"], np.full((2, 2), 1.5, np.float32))


def test_the_run_ends_after_so_many_failed_rounds_in_a_row() -> None:
    strategy = FedAvg(min_replies=2, max_failed_rounds=2)
    play(strategy, flaky({2, 4}), MODEL, (1, 2, 3, 4))  # never two in a row
    with pytest.raises(TooManyFailedRounds) as caught:
        play(strategy, flaky(set()), MODEL, (5, 6, 7))
    assert str(caught.value) == (
        "2 rounds in a row failed: 1 sound replies, min_replies=2 (left out in the last round: partition 1 "
        "RuntimeError: disk full); look at the nodes, or lower min_replies"
    )


def test_a_requester_that_is_not_there_fails_the_round(caplog: pytest.LogCaptureFixture) -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({**sent_model(content), "w": sent_model(content)["w"] + 1})

    grid, strategy = Federation(node, 3), WeightErosion()
    requester = grid.online.pop(0)
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        ((model, metrics),) = play(strategy, grid, MODEL)
    assert_same(model, MODEL)
    assert "step-size" not in metrics
    assert "the requester, partition 0, sent no sound reply" in caplog.text
    grid.online.append(requester)
    ((_, metrics),) = play(strategy, grid, MODEL, (2,))
    assert metrics["replies"] == 3


def test_a_failed_round_counts_after_a_restart() -> None:
    strategy, restored = (FedAvg(min_replies=2, max_failed_rounds=2) for _ in range(2))
    play(strategy, flaky(set()), MODEL, (1,))
    restored.load_state_dict(strategy.state_dict())
    with pytest.raises(TooManyFailedRounds):
        play(restored, flaky(set()), MODEL, (2,))


def test_a_metric_that_not_every_node_sends_is_named(caplog: pytest.LogCaptureFixture) -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        more = {"recall": 0.5} if partition_id == 0 else {}
        return answer(sent_model(content), accuracy=0.25, **more)

    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        ((_, metrics),) = play(FedAvg(), Federation(node, 2), MODEL)
    assert metrics["accuracy"] == 0.25
    assert "recall" not in metrics
    assert "not every node sent 'recall': not averaged" in caplog.text
