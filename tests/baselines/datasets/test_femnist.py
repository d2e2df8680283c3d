"""FEMNIST from LEAF's JSON files, and what the hub's table becomes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from baselines.datasets import Dataset
from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.experiment.data import load_dataset

Leaf = Callable[..., Path]


def load(root: Path, *overrides: str) -> Dataset:
    dataset: Dataset = experiment.Experiment(
        " ".join(["dataset=femnist", f"data_root={root}", "dataset.load.download=false", *overrides])
    ).dataset
    return dataset


def test_leaf_shards_become_bytes_labels_and_writers(leaf: Leaf) -> None:
    leaf("train", [["f0_1", "f0_22"], ["f1_3"]], per_user=5)
    root = leaf("test", [["f9_9"]], per_user=4)
    data = load(root)
    assert data.train_inputs.shape == (15, 1, 28, 28)
    assert data.test_inputs.shape == (4, 1, 28, 28)
    np.testing.assert_array_equal(data.owners, np.repeat([0, 1, 2], 5))  # type: ignore[arg-type]
    np.testing.assert_array_equal(data.train_targets[:5], (np.arange(5) * 13 + 4) % 62)
    rng = np.random.default_rng(sum(map(ord, "f1_3")))
    np.testing.assert_array_equal(data.train_inputs[10].flatten(), rng.integers(0, 256, (5, 784))[0])


def test_without_a_test_folder_every_tenth_writer_is_held_out(leaf: Leaf) -> None:
    root = leaf("train", [[f"f{k:02}" for k in range(25)]], per_user=3)
    data = load(root)
    assert len(data.test_inputs) == 2 * 3  # writers 9 and 19
    assert data.owners is not None
    assert data.owners.max() == 22
    assert len(np.unique(data.owners)) == 23


def test_digits_alone(leaf: Leaf) -> None:
    root = leaf("train", [[f"f{k:02}" for k in range(12)]], per_user=20)
    data = load(root, "dataset.num_classes=10")
    assert int(data.train_targets.max()) < 10
    assert len(data.train_targets) < 220
    assert data.owners is not None
    assert set(data.owners.tolist()) == set(range(11))


def test_by_writer_is_its_partition(leaf: Leaf) -> None:
    root = leaf("train", [["a", "b", "c"]], per_user=6)
    leaf("test", [["d"]])
    setup = experiment.Experiment(f"dataset=femnist data_root={root} num_nodes=3 model=emnist_cnn")
    assert [len(train) for train, _ in setup.partitions] == [6, 6, 6]
    merged = experiment.Experiment(
        f"dataset=femnist data_root={root} num_nodes=2 partitioner.merge=true model=emnist_cnn"
    )
    assert sorted(len(train) for train, _ in merged.partitions) == [6, 12]


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"no LEAF files in {tmp_path / 'femnist' / 'train'}"):
        load(tmp_path)
    (tmp_path / "femnist" / "train").mkdir(parents=True)
    with pytest.raises(UserError, match="no JSON files in"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"users": ["a"], "user_data": {"a": {"x": [[0.0', "is damaged"),
        ('{"users": []}', "is damaged"),
        ('{"user_data": {"a": {"x": [[0.5, 0.5]], "y": [1]}}}', "user a has no images of 28x28"),
        ('{"user_data": {"a": {"y": [1]}}}', "user a has no images of 28x28"),
    ],
)
def test_a_damaged_shard_is_named(content: str, message: str, leaf: Leaf) -> None:
    root = leaf("train", [["a"]])
    shard = root / "femnist" / "train" / "all_data_1_niid_0_keep_0_train_9.json"
    shard.write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        load(root)
    assert str(shard) in str(caught.value)


def test_new_shards_are_noticed(leaf: Leaf) -> None:
    root = leaf("train", [["a"]])
    leaf("test", [["d"]])
    assert len(load(root).train_inputs) == 5
    load_dataset.cache_clear()
    shard = root / "femnist" / "train" / "all_data_0_niid_0_keep_0_train_9.json"
    shard.with_name("more.json").write_text(shard.read_text().replace('"a"', '"b"'))
    data = load(root)
    assert len(data.train_inputs) == 10
    assert data.owners is not None
    assert data.owners.max() == 1
