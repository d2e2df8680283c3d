"""Tiny data sets in the original file formats, and a cache folder of their own."""

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from baselines.experiment.data import load_dataset


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's own cache out of the tests, and data sets out of the process's memory."""
    load_dataset.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "florilegium" / "florilegium-cache"


def write_idx(path: Path, array: np.ndarray) -> None:
    """Write MNIST's format: a magic number with type and dimensions, sizes, then the values."""
    kind = {"uint8": 0x08, "int32": 0x0C}[array.dtype.name]
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(">BBBB", 0, 0, kind, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.astype(array.dtype.newbyteorder(">")).tobytes())


@pytest.fixture(name="write_idx")
def idx_writer() -> Callable[[Path, np.ndarray], None]:
    """Return the function that writes MNIST's format."""
    return write_idx


@pytest.fixture
def digits28() -> dict[str, np.ndarray]:
    """Return 60 + 20 random grey images of 28x28 with labels 0 ... 9."""
    rng = np.random.default_rng(0)
    return {
        "train_inputs": rng.integers(0, 256, (60, 28, 28), dtype=np.uint8),
        "train_targets": (np.arange(60) % 10).astype(np.uint8),
        "test_inputs": rng.integers(0, 256, (20, 28, 28), dtype=np.uint8),
        "test_targets": (np.arange(20) % 10).astype(np.uint8),
    }


@pytest.fixture
def mnist_root(tmp_path: Path, digits28: dict[str, np.ndarray]) -> Path:
    """Return a data folder with a tiny MNIST (and FashionMNIST) in idx format."""
    root = tmp_path / "data"
    for folder in ("MNIST", "FashionMNIST"):
        for part, prefix in (("train", "train"), ("test", "t10k")):
            raw = root / folder / "raw"
            write_idx(raw / f"{prefix}-images-idx3-ubyte", digits28[f"{part}_inputs"])
            write_idx(raw / f"{prefix}-labels-idx1-ubyte", digits28[f"{part}_targets"])
    return root


@pytest.fixture
def emnist_root(tmp_path: Path, digits28: dict[str, np.ndarray]) -> Path:
    """Return a data folder with tiny EMNIST splits in idx format."""
    root = tmp_path / "data"
    for split, classes in (("digits", 10), ("byclass", 62)):
        for part in ("train", "test"):
            stem = root / "EMNIST" / "raw" / f"emnist-{split}-{part}"
            images = digits28[f"{part}_inputs"]
            labels = (np.arange(len(images)) * 7 % classes).astype(np.uint8)
            labels[0] = classes - 1
            write_idx(Path(f"{stem}-images-idx3-ubyte"), images)
            write_idx(Path(f"{stem}-labels-idx1-ubyte"), labels)
    return root


@pytest.fixture
def cifar100_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data folder with a tiny CIFAR-100 in its pickle format."""
    from hashlib import md5

    from torchvision.datasets import CIFAR100

    folder = tmp_path / "data" / "cifar-100-python"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    sums = {}
    for part, size in (("train", 120), ("test", 100)):
        data = rng.integers(0, 256, (size, 3072), dtype=np.uint8)
        labels = [int(i) % 100 for i in range(size)]
        content = pickle.dumps({"data": data, "fine_labels": labels, "filenames": ["x"] * size}, protocol=2)
        (folder / part).write_bytes(content)
        sums[part] = md5(content).hexdigest()
    meta = pickle.dumps({"fine_label_names": [f"class {i}" for i in range(100)]}, protocol=2)
    (folder / "meta").write_bytes(meta)
    # torchvision knows the real files' checksums; these are the tiny ones'.
    monkeypatch.setattr(CIFAR100, "train_list", [["train", sums["train"]]])
    monkeypatch.setattr(CIFAR100, "test_list", [["test", sums["test"]]])
    monkeypatch.setattr(CIFAR100, "meta", CIFAR100.meta | {"md5": md5(meta).hexdigest()})
    return tmp_path / "data"


Leaf = Callable[..., Path]


@pytest.fixture
def leaf(tmp_path: Path) -> Leaf:
    """Return a function that writes LEAF shards: users per file, examples per user."""

    def write(part: str, files: list[list[str]], per_user: int = 5) -> Path:
        folder = tmp_path / "data" / "femnist" / part
        folder.mkdir(parents=True)
        for number, users in enumerate(files):
            data = {}
            for user in users:
                rng = np.random.default_rng(sum(map(ord, user)))
                x = rng.integers(0, 256, (per_user, 784)) / 255
                y = (np.arange(per_user) * 13 + len(user)) % 62
                data[user] = {"x": x.tolist(), "y": y.tolist()}
            shard = {"users": users, "num_samples": [per_user] * len(users), "user_data": data}
            (folder / f"all_data_{number}_niid_0_keep_0_{part}_9.json").write_text(json.dumps(shard))
        return tmp_path / "data"

    return write
