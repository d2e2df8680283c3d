"""Rows that are read batch by batch give what rows in memory give."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Subset

from baselines.datasets import digits, from_torch
from baselines.datasets.dataset import Dataset
from clients import LazyRows
from helpers.runs import metrics_in, played


class Source:
    """A map-style data set that counts its reads."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self._targets = inputs, targets
        self.read = 0

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        self.read += 1
        return self.inputs[row], int(self._targets[row])


def held() -> Dataset:
    return digits([0.3053], [0.3760], 0.2, 0)


def lazily() -> Dataset:
    """Return the digits, read row by row."""
    data = held()
    train = Source(data.train_inputs, data.train_targets)  # type: ignore[arg-type]
    test = Source(data.test_inputs, data.test_targets)  # type: ignore[arg-type]
    return from_torch(train, test, transform=data.transform)


def test_only_what_is_asked_for_is_read() -> None:
    source = Source(torch.arange(12.0).view(6, 2), torch.arange(6))
    rows = LazyRows(source)
    assert (len(rows), rows.shape, rows.dtype) == (6, (6, 2), torch.float32)
    source.read = 0
    assert rows.index_select(0, torch.tensor([4, 1])).tolist() == [[8, 9], [2, 3]]
    assert source.read == 2
    assert rows.index_select(0, torch.tensor([], dtype=torch.int64)).shape == (0, 2)


def test_targets_are_taken_from_the_data_set_where_it_has_them() -> None:
    source = Source(torch.zeros(100, 1), torch.arange(100))
    source.targets = list(range(100))  # type: ignore[attr-defined]
    data = from_torch(source, source)
    assert data.train_targets.tolist() == list(range(100))
    part = Subset(source, [2, 0])  # type: ignore[arg-type,var-annotated]
    assert from_torch(part, source).train_targets.tolist() == [2, 0]
    assert source.read < 100  # a few each, for their shape, and whether the items say the same


def test_where_the_items_have_other_targets_these_count() -> None:
    """As in a subclass, or a subset, that gives other labels."""
    source = Source(torch.zeros(50, 1), torch.arange(50) % 2)
    source.targets = list(range(50))  # type: ignore[attr-defined]
    assert from_torch(source, source).train_targets.tolist() == [row % 2 for row in range(50)]


@pytest.mark.parametrize("batched", ["false", "true"])
def test_a_run_has_the_same_numbers(batched: str, tmp_path: Path) -> None:
    setting = f"model=softmax num_nodes=3 rounds=2 node_test_fraction=0.2 runtime.batch_clients={batched}"
    played(f"{setting} dataset=digits", tmp_path / "held")
    numbers: dict[str, Any] = dict.fromkeys(("dataset.load.mean", "dataset.load.std"))
    more = " ".join(f"~{name}" for name in (*numbers, "dataset.load.test_size", "dataset.load.split_seed"))
    played(f"{setting} dataset=digits dataset.load._target_={__name__}.lazily {more}", tmp_path / "lazy")
    assert metrics_in(tmp_path / "lazy").equals(metrics_in(tmp_path / "held"))


def test_a_lazy_data_set_can_be_changed_as_any_other() -> None:
    assert replace(lazily(), num_classes=10).num_classes == 10


def test_a_target_that_is_changed_as_it_is_read_is_the_one_that_counts() -> None:
    class Parity(Source):
        targets = (5, 4, 9)
        target_transform = staticmethod(lambda target: target % 2)

        def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
            return torch.zeros(1), self.target_transform(self.targets[row])

    source = Parity(torch.zeros(3, 1), torch.zeros(3))
    assert from_torch(source, source).train_targets.tolist() == [1, 0, 1]
    assert from_torch(Subset(source, [1, 2]), source).train_targets.tolist() == [0, 1]  # type: ignore[arg-type,var-annotated]
