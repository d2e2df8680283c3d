"""A site's log has the norm of the update that leaves it, also where frozen parameters stay behind."""

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from baselines.site.guard import _norm_sent
from strategies.shared import protocol
from strategies.shared.flower_private import become_server

SENT = {"w": torch.tensor([1.0, 1.0]), "frozen": torch.tensor([5.0])}


@pytest.mark.parametrize(
    ("names", "reply", "norm"),
    [
        ([], {"w": torch.tensor([4.0, 5.0]), "frozen": torch.tensor([5.0])}, 5.0),
        (["frozen"], {"w": torch.tensor([4.0, 5.0])}, 5.0),
        ([], {"w": torch.tensor([4.0, 5.0])}, None),  # the rest is compressed
    ],
)
def test_the_norm_is_of_what_is_sent(
    names: list[str], reply: dict[str, torch.Tensor], norm: float | None
) -> None:
    become_server()
    config = ConfigRecord({protocol.FROZEN_NAMES: names}) if names else ConfigRecord()
    content = RecordDict({protocol.ARRAYS: ArrayRecord(SENT), protocol.CONFIG: config})
    message = Message(content, 1, "train")
    answer = Message(RecordDict({protocol.ARRAYS: ArrayRecord(reply)}), reply_to=message)
    assert _norm_sent(message, answer) == norm


def test_of_several_models_it_is_the_way_from_the_one_that_was_trained() -> None:
    become_server()
    others = {protocol.model_key(1): ArrayRecord({"w": torch.tensor([1.0, 5.0])})}
    first = ArrayRecord({"w": torch.tensor([9.0, 9.0])})
    message = Message(RecordDict({protocol.ARRAYS: first, **others}), 1, "train")
    metrics = MetricRecord({protocol.CHOSEN_MODEL: 1})
    trained = ArrayRecord({"w": torch.tensor([4.0, 1.0])})
    answer = Message(RecordDict({protocol.ARRAYS: trained, protocol.METRICS: metrics}), reply_to=message)
    assert _norm_sent(message, answer) == 5.0
