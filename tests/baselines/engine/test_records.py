"""What is kept in a checkpoint comes out of it as it was."""

import io

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from baselines.engine.checkpoint import pack_value, unpack_value


def test_records_are_packed_without_loss() -> None:
    values = [np.arange(6, dtype=np.float64).reshape(2, 3).T, np.array(3), np.zeros((0, 2), np.float32)]
    record = RecordDict(
        {
            "arrays": ArrayRecord({f"array{i}": Array(value) for i, value in enumerate(values)}),
            "metrics": MetricRecord({"n": 3, "x": [0.1, 0.2]}),
            "config": ConfigRecord({"name": "a", "flag": True, "raw": b"bytes"}),
        }
    )
    state = {
        "nodes": {3: record},
        "members": {"group0": (0, 2)},
        "iterates": [(torch.ones(2), None)],
        "empty": {},
    }
    stored = io.BytesIO()
    torch.save(pack_value(state), stored)
    stored.seek(0)
    actual = unpack_value(torch.load(stored, weights_only=True))
    assert list(actual["nodes"][3]) == ["arrays", "metrics", "config"]
    for name in ("metrics", "config"):
        assert actual["nodes"][3][name] == record[name]
    arrays = actual["nodes"][3]["arrays"]
    for i, value in enumerate(values):
        kept = arrays[f"array{i}"].numpy()
        assert (kept.dtype, kept.shape, kept.tolist()) == (value.dtype, value.shape, value.tolist())
    assert (actual["members"], actual["empty"]) == ({"group0": (0, 2)}, {})
    torch.testing.assert_close(
        pack_value(actual["iterates"]), pack_value(state["iterates"]), rtol=0, atol=0
    )
