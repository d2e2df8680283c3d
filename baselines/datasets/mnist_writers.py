"""mnist_writers: MNIST divided by writer, 539 writers in training and 297 others in the test set.

Yadav, Bottou: *Cold Case: The Lost MNIST Digits* (QMNIST), NeurIPS 2019, traced each digit to its writer.
A natural partition like FEMNIST's, from small files.
"""

from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from baselines.errors import UserError
from clients import Classification, Normalize

from .cache import load_cached
from .dataset import Dataset, parts
from .images import LOADING_ERRORS, TorchvisionImages, class_named

WRITER_COLUMN = 2  # of QMNIST's labels: class, series, writer, ...


def mnist_writers(
    images: TorchvisionImages, ids: str, qmnist: str, mean: list[float], std: list[float]
) -> Dataset:
    """Return MNIST with the writer of each training image as its owner.

    Parameters
    ----------
    images : MNIST, in its original order
    ids : below the data folder, an ``.npz`` with ``train_writer`` and ``train_label``, a row per image;
        where it is missing, QMNIST's own label files are read or downloaded
    qmnist : the torchvision class that reads them
    mean, std : per channel, of pixels in [0, 1]
    """
    arrays = images.read()
    root = Path(images.root)
    sources = [root / ids, root / "QMNIST" / "raw"]

    def build() -> dict[str, np.ndarray]:
        writers, labels = _ids(root / ids) if (root / ids).exists() else _qmnist(images, qmnist)
        if not np.array_equal(labels, arrays["train_targets"].numpy()):
            raise UserError(f"the writers in {sources[0]} or {sources[1]} are not those of MNIST in {root}")
        return {"owners": np.unique(writers, return_inverse=True)[1].astype(np.int64)}

    owners = load_cached("mnist-writers", None, root, sources, build)["owners"]
    return Dataset(
        *parts(arrays),
        task=Classification(),
        transform=Normalize(tuple(mean), tuple(std)),
        owners=owners.numpy(),
    )


def _ids(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(path) as file:
            return file["train_writer"], file["train_label"]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise UserError(f"{path} is damaged ({error}): put an intact copy there, or delete it") from error


def _qmnist(images: TorchvisionImages, source: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        labels = class_named(source)(
            images.root, what="train", compat=False, download=images.download
        ).targets
    except LOADING_ERRORS as error:
        raise UserError(
            f"the writers of MNIST's digits are not in {images.root} ({error}): put "
            "mnist_writers.npz or QMNIST's files there, or let them be downloaded"
        ) from error
    return labels[:, WRITER_COLUMN].numpy(), labels[:, 0].numpy()
