"""Site files: a site's own data as it lies on its disk, read into arrays.

A folder with a folder of images for each class; a table (``.csv`` or ``.parquet``) with a column of labels;
or an ``.npz`` file with arrays ``inputs`` and ``targets``. Labels are names here, whatever a file has.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from baselines.errors import UserError

KINDS = "a folder of images by class, a .csv, .parquet or .npz file"


class SiteFile(NamedTuple):
    """What a site has: raw inputs [n, ...], each label's name, a table's columns, the files of images."""

    inputs: np.ndarray
    labels: list[str]
    columns: tuple[str, ...] | None = None
    files: tuple[str, ...] | None = None


def read(
    path: Path,
    label: str | None = None,
    columns: Sequence[str] | None = None,
    needs_labels: bool = True,
) -> SiteFile:
    """Return what lies at ``path``.

    Parameters
    ----------
    path : a folder of images by class, or a file
    label : of a table, the column with the labels
    columns : of a table, those to read, in this order; None for all others
    needs_labels : refuse data without any; otherwise their list is empty

    Raises
    ------
    UserError : where nothing can be read there, in one line
    """
    if not path.exists():
        raise UserError(f"there is no data at {path}: expected {KINDS}")
    try:
        if path.is_dir():
            return _images(path, needs_labels)
        if path.suffix == ".npz":
            return _arrays(path, needs_labels)
        if is_table(path):
            return _table(path, label, columns, needs_labels)
    except (OSError, ValueError) as error:  # what pandas, numpy and PIL raise for a damaged file
        raise UserError(f"{path} cannot be read: {error}") from error
    raise UserError(f"{path} is of an unknown kind: expected {KINDS}")


def is_table(path: Path) -> bool:
    """Say whether a path is that of a table, whether or not it is there."""
    return path.suffix in (".csv", ".parquet") and not path.is_dir()


def _images(path: Path, needs_labels: bool) -> SiteFile:
    from torchvision.datasets import ImageFolder  # takes a second, and tables do without
    from torchvision.datasets.folder import IMG_EXTENSIONS

    from .hub import pixels

    loose = sorted(one for one in path.iterdir() if one.suffix.lower() in IMG_EXTENSIONS)
    if needs_labels or not loose:
        folder = ImageFolder(str(path), loader=_picture, allow_empty=True)
        files = [Path(name) for name, _ in folder.samples]
        labels = [folder.classes[k] for _, k in folder.samples]
    elif any(one.is_dir() for one in path.iterdir()):
        raise UserError(
            f"{path} has images beside folders: expected a folder for each class, or images alone"
        )
    else:
        files, labels = loose, []
    pictures = [pixels(_picture(str(file)), None) for file in files]
    shapes = sorted({picture.shape for picture in pictures})
    if len(shapes) != 1:
        what = f"images of {len(shapes)} different shapes, e.g. {shapes[:3]}" if shapes else "no images"
        raise UserError(f"{path} has {what}: expected images of one size and one number of channels")
    names = tuple(file.relative_to(path).as_posix() for file in files)
    return SiteFile(np.stack(pictures), labels, files=names)


def _picture(name: str) -> Any:
    from PIL import Image

    with Image.open(name) as picture:
        picture.load()
        return picture


def _arrays(path: Path, needs_labels: bool) -> SiteFile:
    with np.load(path, allow_pickle=False) as arrays:
        wanted = {"inputs", "targets"} if needs_labels else {"inputs"}
        if missing := sorted(wanted - set(arrays.files)):
            raise UserError(f"{path} has no array {missing[0]!r}: expected inputs [n, ...] and targets [n]")
        inputs = arrays["inputs"]
        targets = arrays["targets"] if "targets" in arrays.files else None
    if inputs.ndim < 2 or (targets is not None and targets.shape != inputs.shape[:1]):
        labelled = "" if targets is None else f" and targets of shape {targets.shape}"
        raise UserError(f"{path} has inputs of shape {inputs.shape}{labelled}: expected [n, ...] and [n]")
    labels = [] if targets is None else [str(target) for target in targets.tolist()]
    return SiteFile(_finite(path, inputs), labels)


def _table(path: Path, label: str | None, columns: Sequence[str] | None, needs_labels: bool) -> SiteFile:
    import pandas as pd

    table = pd.read_parquet(path) if path.suffix == ".parquet" else _csv(path, label)
    there = [str(name) for name in table.columns]
    if label is None:
        raise UserError(f"{path} is a table: name the column with the labels, --label, one of {there}")
    if not len(table):
        raise UserError(f"{path} has a heading and no rows: expected one for each example")
    wanted = [name for name in there if name != label] if columns is None else list(columns)
    has_labels = needs_labels or label in there
    for name in (label, *wanted) if has_labels else wanted:
        if name not in there:
            raise UserError(f"{path} has no column {name!r}: expected one of {there}")
        if count := int((table[name].isna() | (table[name].astype(str) == "")).sum()):
            raise UserError(f"column {name!r} of {path} is empty in {count} rows: fill or remove them")
        if name != label and not pd.api.types.is_numeric_dtype(table[name]):
            raise UserError(f"column {name!r} of {path} holds {table[name].dtype}: expected numbers")
    inputs = table[wanted].to_numpy(dtype=np.float64)
    labels = [str(one) for one in table[label].tolist()] if has_labels else []
    return SiteFile(_finite(path, inputs), labels, tuple(wanted))


def _csv(path: Path, label: str | None) -> Any:
    """Return a table; of its labels what is written, as 01 is not 1, and None may be a class."""
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # it would drop what has no heading
            table = pd.read_csv(path, index_col=False)
            if label in table:
                written = pd.read_csv(
                    path, dtype=str, keep_default_na=False, usecols=[label], index_col=False
                )
                table[label] = written[label]
            return table
    except pd.errors.ParserWarning as error:
        raise UserError(
            f"{path} has rows with more fields than its heading: give each column a name"
        ) from error


def _finite(path: Path, inputs: np.ndarray) -> np.ndarray:
    if not np.isfinite(inputs).all():
        raise UserError(f"{path} has NaN or infinite values: fill or remove them")
    return inputs
