"""hub: any image set of the Hugging Face hub, loaded by flwr-datasets.

Instead of a name on the hub, a local folder works that ``datasets.load_dataset`` can read (parquet files,
folders of images by class).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from baselines.errors import UserError
from clients import Classification, Normalize
from clients.augment import Augmentation

from .cache import load_cached
from .dataset import Dataset, parts
from .labels import RULE_VERSION, class_names
from .tables import Table, arrays_of, hold_out, number_labels


def hub(
    name: str | None,
    image: str,
    label: str,
    writer: str | None,
    subset: str | None,
    train_split: str,
    test_split: str | None,
    size: list[int] | None,
    cache: str,
    augment: Augmentation | None = None,
) -> Dataset:
    """Return a hub data set for classification; it is normalised by its own mean and deviation.

    Parameters
    ----------
    name : on the hub, e.g. ``uoft-cs/cifar10``, or a folder
    image, label : columns; images are pictures, or {bytes, path} of such
    writer : column that tells natural partitions apart; None without one
    subset : of hub sets that have several
    train_split, test_split : None as test split keeps a tenth for testing, of writers where there are ten
    size : height and width to bring images to; None when they are all of one size
    cache : the folder for the cache
    augment : changes batches at random in training
    """
    if name is None:
        raise UserError(
            "dataset=hub needs a name: set dataset.name to a data set of the Hugging Face hub, and "
            "dataset.image and dataset.label to its columns"
        )
    columns: dict[str, str | None] = {"image": image, "label": label, "writer": writer}
    settings = (name, columns, subset, train_split, test_split, size, RULE_VERSION)

    def build() -> dict[str, np.ndarray]:
        tables = read_hub(name, subset, [train_split, test_split], columns, size)
        tables = number_labels(tables, f"column {label!r} of data set {name}")
        train, test = tables if len(tables) > 1 else hold_out(tables[0])
        arrays = arrays_of(train, test)
        pixels = arrays["train_inputs"].astype(np.float32) / 255
        axes = (0, 2, 3)
        return arrays | {"mean": pixels.mean(axes), "std": pixels.std(axes).clip(1e-3)}

    folder = [Path(name)] if Path(name).is_dir() else []
    arrays = load_cached(Path(name).name, settings, Path(cache), folder, build)
    writers = arrays.pop("owners", None)
    mean, std = (tuple(arrays.pop(key).tolist()) for key in ("mean", "std"))
    return Dataset(
        *parts(arrays),
        task=Classification(),
        transform=Normalize(mean, std),
        owners=None if writers is None else writers.numpy(),
        augment=augment,
        num_classes=1 + max(int(arrays[f"{part}_targets"].max()) for part in ("train", "test")),
    )


def read_hub(
    name: str,
    subset: str | None,
    splits: list[str | None],
    columns: dict[str, str | None],
    size: list[int] | None = None,
) -> list[Table]:
    """Return one table per split that is not None; ``columns`` names image, label and writer.

    Raises
    ------
    UserError : when the set, a split or a column is missing, a cell is empty or of another type, or images
        differ in size
    """

    def pictures(rows: Any) -> np.ndarray:
        return _pictures(rows, str(columns["image"]), name, size)

    return [table_of(rows, name, columns, pictures) for rows in load_splits(name, subset, splits)]


def load_splits(name: str, subset: str | None, splits: Sequence[str | None]) -> list[Any]:
    """Return the rows of each split that is not None.

    Raises
    ------
    UserError : when the set or a split is missing
    """
    from flwr_datasets import FederatedDataset

    try:
        source = FederatedDataset(dataset=name, subset=subset, partitioners={}, shuffle=False)
        return [source.load_split(split) for split in splits if split is not None]
    except Exception as error:  # errors of the hub, the network, the file system have no common class
        raise UserError(
            f"data set {name} could not be loaded from the Hugging Face hub "
            f"({error}): check name, subset, splits and network, or try "
            "dataset=digits, which needs none"
        ) from error


def table_of(
    rows: Any, name: str, columns: Mapping[str, str | None], read_inputs: Callable[[Any], np.ndarray]
) -> Table:
    """Return rows with labels and writers; ``columns`` names these and the column for ``read_inputs``.

    Raises
    ------
    UserError : when there are no rows, a column is missing, or a cell is empty
    """
    for role, column in columns.items():
        if column is not None and column not in rows.column_names:
            raise UserError(
                f"data set {name} has no column {column!r} for the {role}: expected one of "
                f"{rows.column_names}"
            )
    if not len(rows):
        raise UserError(f"data set {name} has a split without rows: choose another split")
    inputs, writer = read_inputs(rows), columns["writer"]
    labels, has_numbers = _labels(rows, str(columns["label"]), name)
    writers = None if writer is None else _writers(rows[writer][:], f"column {writer!r} of data set {name}")
    return Table(inputs, labels, writers, has_numbers)


def _pictures(rows: Any, column: str, name: str, size: list[int] | None) -> np.ndarray:
    """Return the pixels of all pictures, [N, C, H, W].

    Raises
    ------
    UserError : for pictures of several sizes, and rows without a readable picture
    """
    pictures = _read_pictures(rows, column, name, size)
    channels = max((picture.shape[0] for picture in pictures), default=1)
    pictures = [p if len(p) == channels else np.repeat(p, channels, 0) for p in pictures]
    shapes = {picture.shape[1:] for picture in pictures}
    if len(shapes) != 1:
        raise UserError(
            f"the images of data set {name} have {len(shapes)} different sizes: resize them to one, e.g. "
            "dataset.size=[32,32]"
        )
    return np.stack(pictures)


def _read_pictures(rows: Any, column: str, name: str, size: list[int] | None) -> list[np.ndarray]:
    """Return the pixels of each row's picture.

    Raises
    ------
    UserError : for rows without a readable picture
    """
    from datasets import Image
    from PIL.Image import Image as Picture

    where = f"column {column!r} of data set {name}"
    expected = "expected pictures, or {bytes, path} of such"
    pictures, empty, row = [], 0, -1
    try:
        if _holds_bytes(rows.features[column]):
            rows = rows.cast_column(column, Image())
        for row, picture in enumerate(rows[column]):
            if picture is not None and not isinstance(picture, Picture):
                raise UserError(f"{where} holds a {type(picture).__name__} in row {row}: {expected}")
            empty += picture is None
            pictures += [] if picture is None else [pixels(picture, size)]
    except (UserError, MemoryError):
        raise
    except Exception as error:  # PIL's, pyarrow's, the file system's
        raise UserError(f"{where} cannot be read after row {row} ({error}): {expected}") from error
    if empty:
        raise UserError(f"{where} is empty in {empty} rows: fill or remove them")
    return pictures


def _holds_bytes(feature: Any) -> bool:
    """Say whether a column that is not declared as images holds images' bytes."""
    if isinstance(feature, Mapping):
        return feature.keys() == {"bytes", "path"}
    return str(getattr(feature, "dtype", "")) in ("binary", "large_binary")


def _labels(rows: Any, column: str, name: str) -> tuple[np.ndarray, bool]:
    """Return each row's class, and whether it is a number, as in a ClassLabel column."""
    from datasets import ClassLabel

    labels, has_numbers = rows[column][:], isinstance(rows.features[column], ClassLabel)
    if has_numbers:
        labels = [None if label == -1 else label for label in labels]  # the hub's mark of a missing label
    names = class_names(labels, f"column {column!r} of data set {name}", "the label")
    return (np.array(labels, np.int64) if has_numbers else np.array(names)), has_numbers


def _writers(writers: Sequence[Any], where: str) -> np.ndarray:
    class_names(writers, where, "the writer")  # refuses missing writers
    return np.array(writers)


def pixels(picture: Any, size: list[int] | None) -> np.ndarray:
    """Return a PIL picture as uint8 [C, H, W], one channel when it is grey.

    Raises
    ------
    UserError : for a picture of more than 8 bits, which would be clipped at 255
    """
    from PIL import Image

    if picture.mode == "F" or picture.mode.startswith("I"):
        what = f"there are pictures of more than 8 bits a channel (mode {picture.mode})"
        raise UserError(f"{what}: save them with 8 bits, or put their values into an .npz file")
    picture = picture.convert("L" if picture.mode in ("1", "L", "LA") else "RGB")
    if size is not None:
        picture = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(picture)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)
