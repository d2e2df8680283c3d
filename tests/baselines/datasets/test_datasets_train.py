"""A round of training on every data set that is read from files, in its original format but tiny."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from baselines.experiment.overrides import CONF
from helpers.runs import curve, played

NO_SUMS = "dataset.load.images.sha256=null"
OFFLINE = "dataset.load.images.download=false"
DIGITS = ["mnist", "fmnist", "cmnist", "cmnist_maps", "rotmnist", "rotmnist_nodes", "mnist_relabelled"]
TRIED = {*DIGITS, "mnist_writers", "emnist", "femnist", "cifar100"}
OTHERWISE = {
    "digits",
    "local",
    "synthetic",
    "cifar10",
    "hub",
    "speech",
    "text",
}  # elsewhere; cifar10 has cifar100's format


def test_every_data_set_is_tried() -> None:
    assert {path.stem for path in (CONF / "dataset").glob("*.yaml")} == TRIED | OTHERWISE


def trains(overrides: str, folder: Path, nodes: int) -> None:
    rows = played(f"{overrides} num_nodes={nodes} rounds=1 client.batch_size=8", folder / str(nodes))
    assert curve(rows, "train", "replies") == [nodes]
    assert curve(rows, "train", "failed") == [0]
    before, after = curve(rows, "test", "loss")
    assert np.isfinite(after)
    assert before != after


@pytest.mark.slow
@pytest.mark.parametrize("name", DIGITS)
def test_digits_and_clothes(name: str, mnist_root: Path, tmp_path: Path) -> None:
    trains(
        f"dataset={name} data_root={mnist_root} {NO_SUMS} {OFFLINE} model=lenet partitioner=iid",
        tmp_path,
        3,
    )


@pytest.mark.slow
def test_writers(mnist_root: Path, tmp_path: Path, digits28: dict[str, np.ndarray]) -> None:
    (mnist_root / "MNIST-writers").mkdir()
    np.savez(
        mnist_root / "MNIST-writers" / "mnist_writers.npz",
        train_writer=np.arange(60) % 5,
        train_label=digits28["train_targets"],
    )
    overrides = f"dataset=mnist_writers data_root={mnist_root} {NO_SUMS} {OFFLINE} model=lenet"
    trains(overrides, tmp_path, 5)
    trains(f"{overrides} partitioner.merge=true", tmp_path, 2)


@pytest.mark.slow
def test_emnist(emnist_root: Path, tmp_path: Path) -> None:
    trains(
        f"dataset=emnist data_root={emnist_root} {OFFLINE} model=emnist_cnn partitioner=iid", tmp_path, 2
    )


@pytest.mark.slow
def test_cifar100_with_augmentation(cifar100_root: Path, tmp_path: Path) -> None:
    trains(f"dataset=cifar100 data_root={cifar100_root} {OFFLINE} model=mlp partitioner=iid", tmp_path, 2)


@pytest.mark.slow
def test_femnist(leaf: Callable[..., Path], tmp_path: Path) -> None:
    root = leaf("train", [["a", "b"], ["c"]], per_user=6)
    leaf("test", [["d"]])
    trains(f"dataset=femnist data_root={root} dataset.load.download=false model=emnist_cnn", tmp_path, 3)
