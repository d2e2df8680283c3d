"""A round computes where its arrays lie: on an accelerator nothing mixes with host memory."""

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, RecordDict

from helpers.elsewhere import DEVICE, Accelerator
from helpers.every_part import NODES, start
from helpers.every_strategy import Make, all_strategies, asking, drifting
from helpers.federation import Federation, assert_same, play, record
from strategies.shared import protocol
from strategies.shared.arrays import move_record, record_device, values_of


def far(partition_id: int, content: RecordDict) -> RecordDict:
    """Answer as ``drifting``, with arrays on the accelerator; what was asked came from there."""
    records = content.array_records.values()
    assert {record_device(record) for record in records} == {DEVICE}
    out = drifting(partition_id, content)
    for name in (protocol.ARRAYS, protocol.CONTROL):
        if name in out:
            out[name] = move_record(out.array_records[name], DEVICE)
    return out


@pytest.mark.exhaustive
@all_strategies
def test_every_strategy_gives_the_same_bytes_on_an_accelerator(make: Make) -> None:
    near = play(asking(make()), Federation(drifting, NODES), record(start()), (1, 2, 3))
    with Accelerator():
        arrays = move_record(record(start()), DEVICE)
        far_away = play(asking(make()), Federation(far, NODES), arrays, (1, 2, 3))
        assert {record_device(arrays) for arrays, _ in far_away} == {DEVICE}
        for (one, ours), (other, theirs) in zip(far_away, near, strict=True):
            assert_same(one, other)
            assert dict(ours) == pytest.approx(dict(theirs), rel=1e-12, nan_ok=True)


def test_the_pretended_accelerator_does_not_mix() -> None:
    with Accelerator():
        far_tensor, here = torch.ones(3, device=DEVICE), torch.arange(3.0)
        assert (far_tensor + far_tensor).device == DEVICE
        assert (far_tensor.to("cpu") + here).tolist() == [1, 2, 3]
        assert float((far_tensor + 2).sum()) == 9
        far_tensor[1:] = 5
        assert far_tensor.cpu().tolist() == [1, 5, 5]
        with pytest.raises(RuntimeError, match="both devices"):
            far_tensor + here


def test_values_stay_until_bytes_are_asked_for() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    plain = record({"w": values})
    with Accelerator():
        moved = move_record(plain, DEVICE)
        assert values_of(moved["w"]).device == DEVICE
        assert moved["w"].data == plain["w"].data
    assert record_device(ArrayRecord()) == record_device(plain) == torch.device("cpu")
