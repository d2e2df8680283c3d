"""The rows of a round: what is sound, and whether anything has moved."""

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from helpers.federation import answer, record
from strategies.core.replies import SoundReplies, Stack, Workspace
from strategies.parts.layout import Layout
from strategies.shared.flower_private import become_server

START = np.array([1.0, 2.0, 3.0], np.float32)
MAX = float(np.finfo(np.float32).max)


def collected(*models: tuple[float, ...], start: np.ndarray = START) -> SoundReplies:
    """Return what a round of nodes with these parameters leaves."""
    become_server()
    layout = Layout.of(record({"w": start}))
    stack = Stack(layout, layout.flatten_parameters(record({"w": start})), Workspace(), len(models))
    for partition_id, model in enumerate(models):
        request = Message(RecordDict(), partition_id, "train")
        reply = Message(answer({"w": np.array(model, np.float32)}), reply_to=request)
        stack.read(partition_id, reply)
    return stack.collect()


@pytest.mark.parametrize(
    ("models", "moved"),
    [
        ([(1, 2, 3)], False),
        ([(1, 2, 3), (1, 2, 3)], False),
        ([(1, 2, 4)], True),
        ([(0, 3, 3)], True),  # Delta = (1, -1, 0), whose sum is 0
        ([(0, 2, 3), (1, 2, 3)], True),  # the first of two
        ([(1, 2, 3), (0, 2, 3)], True),
        ([(1, 2, 3), (float("nan"), 2, 3)], False),  # one that is left out moves nothing
    ],
    ids=str,
)
def test_whether_a_sound_reply_holds_another_parameter(
    models: list[tuple[float, ...]], moved: bool
) -> None:
    assert collected(*models).has_moved is moved


def test_a_reply_is_kept_though_its_sum_overflows() -> None:
    """The terms are finite, their sum in float32 is not."""
    actual = collected((-MAX, -MAX, 0), start=np.zeros(3, np.float32))
    assert actual.updates.deltas.tolist() == [[MAX, MAX, 0]]
    assert not actual.faults


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_the_next_reply_takes_the_row_of_one_that_is_not_finite(bad: float) -> None:
    actual = collected((1, 2, 2), (0, bad, 0), (5, 5, 5))
    assert actual.updates.partition_ids == (0, 2)
    assert actual.updates.deltas.tolist() == [[0, 0, 1], [-4, -3, -2]]
    assert actual.faults == {1: "sent NaN or infinite values"}
