"""A round of training on every partition, of the real digits."""

from pathlib import Path

import numpy as np
import pytest

from baselines.datasets import Dataset
from baselines.experiment import experiment
from baselines.experiment.data import load_dataset
from baselines.experiment.overrides import CONF
from helpers.runs import curve, played

OPTIONS = sorted(path.stem for path in (CONF / "partitioner").glob("*.yaml"))


@pytest.fixture(autouse=True)
def with_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ten writers have written the digits."""
    from dataclasses import replace

    real = load_dataset

    def dataset(yaml: str) -> Dataset:
        data = real(yaml)
        return replace(data, owners=np.arange(len(data.train_targets)) % 10)

    monkeypatch.setattr("baselines.experiment.data.load_dataset", dataset)
    experiment.load.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_a_round_of_training(name: str, tmp_path: Path) -> None:
    nodes = 1 if name == "centralized" else 10
    overrides = (
        f"partitioner={name} num_nodes={nodes} rounds=1 node_test_fraction=0.2 client.optimizer.lr=0.1"
    )
    rows = played(overrides, tmp_path)
    before, after = curve(rows, "test", "loss")
    assert after < before
    assert curve(rows, "train", "replies") == [nodes]
    assert curve(rows, "train", "failed") == [0]
    assert len(curve(rows, "node-test", "accuracy")) == 1
