"""Image sets of torchvision, such as MNIST, as uint8 tensors [N, C, H, W]."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from pkgutil import resolve_name
from typing import Any

import numpy as np

from baselines.errors import UserError
from clients import Classification, Normalize
from clients.augment import Augmentation

from .cache import Arrays, load_cached
from .dataset import Dataset, parts

# Errors of torchvision for missing or malformed files, and failed downloads.
LOADING_ERRORS = (
    AssertionError,
    RuntimeError,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    UnpicklingError,
)


@dataclass(frozen=True, kw_only=True)
class TorchvisionImages:
    """The four arrays of a torchvision data set, cached.

    Parameters
    ----------
    source : the torchvision class, e.g. ``torchvision.datasets.MNIST``; by name, because importing
        torchvision takes longer than reading the cache
    root : the folder that torchvision looks in
    folder : below ``root``, where this set's files are
    download : fetch what is missing
    split : for classes that take one (EMNIST)
    sha256 : {name in ``folder``: checksum} of files that torchvision itself does not check
    """

    source: str
    root: str
    folder: str
    download: bool
    split: str | None = None
    sha256: Mapping[str, str] | None = None

    def read(self) -> Arrays:
        """Return train_inputs, train_targets, test_inputs and test_targets.

        Raises
        ------
        UserError : when a file is missing and cannot be downloaded, or damaged
        """
        root = Path(self.root)
        return load_cached(self.name, self.split, root, [root / self.folder], self._build)

    def derive(
        self, name: str, settings: object, change: Callable[[Arrays], Mapping[str, np.ndarray]]
    ) -> Arrays:
        """Return ``change`` of the arrays, cached by name, source and settings."""
        root, whole = Path(self.root), (self.source, self.split, settings)
        return load_cached(name, whole, root, [root / self.folder], lambda: change(self.read()))

    @property
    def name(self) -> str:
        """The data set's name."""
        return self.source.rpartition(".")[2]

    def _build(self) -> dict[str, np.ndarray]:
        self._check_files()
        arrays: dict[str, np.ndarray] = {}
        for part in ("train", "test"):
            inputs, targets = self._load(train=part == "train")
            if len(inputs) != len(targets):
                raise UserError(
                    f"data set {self.name} in {self.root} has {len(inputs)} {part} images but "
                    f"{len(targets)} labels: put an intact copy there"
                )
            arrays |= {f"{part}_inputs": inputs, f"{part}_targets": targets}
        self._check_files()  # downloaded files, too
        return arrays

    def _load(self, *, train: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return images [N, C, H, W] and labels [N]."""
        options: dict[str, Any] = {} if self.split is None else {"split": self.split}
        try:
            data = class_named(self.source)(root=self.root, train=train, download=self.download, **options)
        except LOADING_ERRORS as error:
            has_files = any(Path(self.root, self.folder).glob("*"))
            state = "cannot be read from" if has_files else "is not in"
            tried = "could not be downloaded" if self.download else "download=false"
            raise UserError(
                f"data set {self.name} {state} {self.root} ({tried}: {error}); put "
                "an intact copy there, set data_root to the folder that holds it, or try dataset=digits, "
                "which needs no network"
            ) from error
        images = np.asarray(data.data)
        images = images[:, None] if images.ndim == 3 else np.moveaxis(images, 3, 1)
        return np.ascontiguousarray(images), np.asarray(data.targets, dtype=np.int64)

    def _check_files(self) -> None:
        for name, expected in (self.sha256 or {}).items():
            path = Path(self.root, self.folder, name)
            if not path.exists():
                continue
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != expected:
                raise UserError(
                    f"{path} is damaged: its SHA-256 is {digest[:12]}..., expected {expected[:12]}...; "
                    "delete it and put an intact copy there, or let it be downloaded again"
                )


def class_named(name: str) -> Any:
    """Return a class by its dotted name.

    Raises
    ------
    UserError : when there is no such class
    """
    expected = "expected a class such as torchvision.datasets.MNIST"
    try:
        kind = resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"dataset.load: there is no {name} ({error}): {expected}") from error
    if not isinstance(kind, type):
        raise UserError(f"dataset.load: {name} is not a class: {expected}")
    return kind


def image_classification(
    images: TorchvisionImages,
    mean: list[float],
    std: list[float],
    augment: Augmentation | None = None,
) -> Dataset:
    """Return a torchvision data set for classification.

    Parameters
    ----------
    images : where the images come from
    mean, std : per channel, of pixels in [0, 1]
    augment : changes batches at random in training
    """
    return Dataset(
        *parts(images.read()),
        task=Classification(),
        transform=Normalize(tuple(mean), tuple(std)),
        augment=augment,
    )
