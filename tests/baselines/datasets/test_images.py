"""Image sets in torchvision's formats: tiny copies in the original file formats, and the real ones."""

import hashlib
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from baselines.datasets import Dataset, TorchvisionImages
from baselines.datasets.cache import Arrays
from baselines.errors import UserError
from baselines.experiment import config, experiment
from baselines.experiment.data import load_dataset
from baselines.experiment.overrides import ROOT

NO_SUMS = "dataset.load.images.sha256=null"


def load(*overrides: str) -> Dataset:
    dataset: Dataset = experiment.Experiment(" ".join(overrides)).dataset
    return dataset


@pytest.mark.parametrize("name", ["mnist", "fmnist"])
def test_idx_files_become_bytes_in_channels(
    name: str, mnist_root: Path, digits28: dict[str, np.ndarray]
) -> None:
    data = load(f"dataset={name}", f"data_root={mnist_root}", NO_SUMS)
    np.testing.assert_array_equal(data.train_inputs.numpy()[:, 0], digits28["train_inputs"])
    np.testing.assert_array_equal(data.test_inputs.numpy()[:, 0], digits28["test_inputs"])
    np.testing.assert_array_equal(data.train_targets.numpy(), digits28["train_targets"])
    assert data.train_inputs.dtype == torch.uint8
    assert data.train_targets.dtype == torch.int64
    assert data.augment is None


@pytest.mark.slow
def test_a_cached_set_needs_no_torchvision(mnist_root: Path) -> None:
    """It is written to the cache here, and read in a process that has not read the original files."""
    import subprocess

    setting = f"dataset=mnist data_root={mnist_root} {NO_SUMS}"
    total = int(experiment.Experiment(setting).dataset.train_inputs.sum())
    script = (
        "import sys; from baselines.experiment import experiment\n"
        f"data = experiment.Experiment('{setting}').dataset\n"
        "print('torchvision' in sys.modules, int(data.train_inputs.sum()))"
    )
    run = [sys.executable, "-c", script]
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False", str(total)]


@pytest.mark.parametrize(("split", "classes"), [("byclass", 62), ("digits", 10)])
def test_emnist_has_its_splits(split: str, classes: int, emnist_root: Path) -> None:
    setup = experiment.Experiment(
        f"dataset=emnist dataset.split={split} data_root={emnist_root} model=softmax"
    )
    assert setup.cfg.dataset.num_classes == classes
    assert int(setup.dataset.train_targets.max()) == classes - 1
    assert len(setup.dataset.train_inputs) == 60
    assert setup.model()(torch.zeros(1, 1, 28, 28)).shape == (1, classes)


def test_an_unknown_emnist_split_is_refused_in_one_line(emnist_root: Path) -> None:
    with pytest.raises(UserError, match=r"dataset\.classes\.letters") as caught:
        load("dataset=emnist", "dataset.split=letters", f"data_root={emnist_root}")
    assert "\n" not in str(caught.value)


def test_cifar100_pickles(cifar100_root: Path) -> None:
    import pickle

    data = load("dataset=cifar100", f"data_root={cifar100_root}")
    assert data.train_inputs.shape == (120, 3, 32, 32)
    raw = pickle.loads((cifar100_root / "cifar-100-python" / "train").read_bytes())
    np.testing.assert_array_equal(data.train_inputs[7].numpy().ravel(), raw["data"][7])
    assert data.train_targets[7] == 7
    assert data.augment is not None


def test_augmentation_is_a_choice(cifar100_root: Path) -> None:
    where = f"data_root={cifar100_root}"
    cut = load("dataset=cifar100", where, "dataset.load.augment.cutout=16").augment
    assert (cut.padding, cut.flip, cut.cutout) == (4, True, 16)  # type: ignore[union-attr]
    assert load("dataset=cifar100", where, "dataset.load.augment=null").augment is None


def test_a_missing_set_names_the_folder_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"MNIST is not in {tmp_path}.*dataset=digits") as caught:
        load("dataset=mnist", f"data_root={tmp_path}", "dataset.load.images.download=false")
    assert "\n" not in str(caught.value)


def test_a_wrong_byte_in_a_source_file_is_named(mnist_root: Path) -> None:
    raw = mnist_root / "MNIST" / "raw"
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in raw.iterdir()}
    given = "dataset.load.images.sha256={" + ",".join(f"{name}:{sum_}" for name, sum_ in sums.items()) + "}"
    assert len(load("dataset=mnist", f"data_root={mnist_root}", f"'{given}'").train_inputs) == 60
    labels = raw / "train-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-1] + b"\x03")
    load_dataset.cache_clear()
    with pytest.raises(UserError, match=f"{labels} is damaged"):
        load("dataset=mnist", f"data_root={mnist_root}", f"'{given}'")


@pytest.mark.parametrize("kept", [-1, 16, 3, 0])
def test_a_half_written_source_file_is_never_trained_on(kept: int, mnist_root: Path) -> None:
    images = mnist_root / "MNIST" / "raw" / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:kept])
    with pytest.raises(UserError, match="MNIST cannot be read from"):
        load("dataset=mnist", f"data_root={mnist_root}", NO_SUMS, "dataset.load.images.download=false")


def test_images_without_labels_are_refused(mnist_root: Path) -> None:
    labels = mnist_root / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    content = labels.read_bytes()
    labels.write_bytes(content[:4] + (59).to_bytes(4, "big") + content[8:-1])
    with pytest.raises(UserError, match="60 train images but 59 labels"):
        load("dataset=mnist", f"data_root={mnist_root}", NO_SUMS)


def test_a_damaged_cache_is_mended_from_the_sources(
    mnist_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = ("dataset=mnist", f"data_root={mnist_root}", NO_SUMS)
    before = load(*overrides).train_inputs.clone()
    (file,) = (mnist_root / "florilegium-cache").iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    load_dataset.cache_clear()
    file.unlink()
    file.write_bytes(content)
    assert torch.equal(load(*overrides).train_inputs, before)
    assert str(file) in caplog.text


def test_a_class_too_many_is_refused(mnist_root: Path) -> None:
    with pytest.raises(UserError, match=r"dataset\.num_classes=5, but there are labels up to 9"):
        load("dataset=mnist", f"data_root={mnist_root}", NO_SUMS, "dataset.num_classes=5")


def test_the_real_mnist_and_fashion_mnist(shared_data: Path) -> None:
    for name, mean, std in (("mnist", 0.1307, 0.3081), ("fmnist", 0.2860, 0.3530)):
        data = load(f"dataset={name}", f"data_root={shared_data}")
        assert data.train_inputs.shape == (60_000, 1, 28, 28)
        assert data.test_inputs.shape == (10_000, 1, 28, 28)
        pixels = data.train_inputs.float() / 255
        assert abs(float(pixels.mean()) - mean) < 5e-5
        assert abs(float(pixels.std()) - std) < 5e-5
        normal = data.transform(data.train_inputs[:20_000])  # type: ignore[misc]
        assert abs(float(normal.mean())) < 0.02


@pytest.mark.slow
def test_the_real_cifar10(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = shared_data / "unpack_cifar10.py"
    if not script.exists():
        pytest.skip(f"no {script}")
    root = tmp_path / "cifar"
    root.mkdir()
    monkeypatch.setattr(sys, "argv", [str(script), str(root)])
    runpy.run_path(str(script), run_name="__main__")
    data = load("dataset=cifar10", f"data_root={root}")
    assert data.train_inputs.shape == (50_000, 3, 32, 32)
    assert torch.bincount(data.train_targets).tolist() == [5_000] * 10
    pixels = data.train_inputs.float().div_(255)
    source = config.load("dataset=cifar10").dataset.load
    torch.testing.assert_close(pixels.mean((0, 2, 3)), torch.tensor(source.mean), atol=1e-4, rtol=0)
    torch.testing.assert_close(pixels.std((0, 2, 3)), torch.tensor(source.std), atol=1e-4, rtol=0)
    batch = root / "cifar-10-batches-py" / "data_batch_3"
    content = bytearray(batch.read_bytes())
    content[len(content) // 2] ^= 1
    batch.write_bytes(content)
    with pytest.raises(UserError, match="CIFAR10 cannot be read"):
        load("dataset=cifar10", f"data_root={root}", "dataset.load.images.download=false")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("torchvision.datasets.Nothing", "there is no torchvision.datasets.Nothing"),
        ("nowhere.MNIST", "there is no nowhere.MNIST"),
        ("1st.MNIST", "there is no 1st.MNIST"),
        ("torchvision.datasets", "torchvision.datasets is not a class"),
    ],
)
def test_a_source_that_is_no_class_gets_one_line(source: str, message: str, mnist_root: Path) -> None:
    overrides = f"dataset=mnist data_root={mnist_root} dataset.load.images.sha256=null"
    with pytest.raises(UserError, match=message) as refused:
        _ = experiment.Experiment(f'{overrides} "dataset.load.images.source={source}"').dataset
    assert "\n" not in str(refused.value)


def test_what_is_made_of_two_splits_is_kept_apart(emnist_root: Path) -> None:
    def counted(arrays: Arrays) -> dict[str, np.ndarray]:
        return {"highest": arrays["train_targets"].max().numpy()}

    def made(split: str) -> int:
        images = TorchvisionImages(
            source="torchvision.datasets.EMNIST", root=str(emnist_root), folder="EMNIST/raw",
            download=False, split=split,
        )  # fmt: skip
        return int(images.derive("highest", "of all", counted)["highest"])

    assert (made("digits"), made("byclass"), made("digits")) == (9, 61, 9)
