"""Read a site's own files into arrays.

Data are a folder with a folder of images per class, a table (``.csv``, ``.tsv``, both also as ``.gz``, or
``.parquet``) with a column of labels, or an ``.npz`` file with arrays ``inputs`` and ``targets``. Labels
become names of classes (:mod:`baselines.datasets.labels`).

Every refusal is a :class:`~baselines.errors.DataError`: its ``public`` line holds no value, no path and no
column that the schema does not name.
"""

import os
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from baselines.errors import DataError, UserError

from .labels import class_names, clean_text

FILE_KINDS = "a folder of images by class, a .csv, .tsv, .parquet or .npz file"
READING_VERSION = 2  # raise it when the same file gives other arrays, so that prepared data are made anew
SEPARATORS = {".csv": ",", ".tsv": "\t"}
PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
SYSTEM_NAMES = (
    "__macosx",
    "thumbs.db",
    "desktop.ini",
    "@eadir",
    "$recycle.bin",
    "system volume information",
)
ROW_NUMBER_COLUMN = re.compile(
    r"Unnamed: \d+|__index_level_\d+__|"
)  # pandas' and pyarrow's names for row numbers
NO_CLASS_FOLDER = "in no folder of a class"
NOTHING_LEFT_OUT: Mapping[str, int] = MappingProxyType({})


class SiteFile(NamedTuple):
    """A site's data: raw inputs [n, ...], class names, a table's columns, images' files.

    A missing label, where allowed, is ""; if all are missing, the list is empty. ``left_out`` counts the
    files in a folder that are not examples, by reason. ``tidied`` counts labels and column names that had
    surrounding blanks or decomposed characters.
    """

    inputs: np.ndarray
    labels: list[str]
    columns: tuple[str, ...] | None = None
    left_out: Mapping[str, int] = NOTHING_LEFT_OUT
    tidied: Mapping[str, int] = NOTHING_LEFT_OUT
    files: tuple[str, ...] | None = None


def read(
    path: Path,
    label: str | None = None,
    columns: Sequence[str] | None = None,
    needs_labels: bool = True,
) -> SiteFile:
    """Read the data at ``path``.

    Parameters
    ----------
    path : a folder of images by class, or a file
    label : of a table, the column with the labels
    columns : of a table, those to read, in this order; None for all others
    needs_labels : whether missing labels are refused

    Raises
    ------
    DataError : if the data cannot be read, in one line
    """
    try:
        if not path.exists():
            raise DataError(f"there is no data at {path}: expected {FILE_KINDS}", "data: there is none")
        if path.is_dir():
            return _images(path, needs_labels)
        if _kind(path) == ".npz":
            return _arrays(path, needs_labels)
        if is_table(path):
            return _table(path, label, columns, needs_labels)
    except (UserError, MemoryError):
        raise
    except Exception as error:  # for a damaged file: of zipfile, pandas, pyarrow, numpy, the system
        raise DataError(f"{path} cannot be read: {error}", "data: it cannot be read") from error
    raise DataError(
        f"{path} is of an unknown kind: expected {FILE_KINDS}", "data: it is of an unknown kind"
    )


def is_table(path: Path) -> bool:
    """Say whether a path is that of a table, existing or not."""
    return _kind(path) in (*SEPARATORS, ".parquet") and not path.is_dir()


def _kind(path: Path) -> str:
    """Return a file's suffix in lower case, without the .gz of a compressed text."""
    end = Path(path.name.lower())
    bare = Path(end.stem).suffix if end.suffix == ".gz" else ""
    return bare if bare in SEPARATORS else end.suffix


# A folder of images


def _images(path: Path, needs_labels: bool) -> SiteFile:
    names, left_out = _pictures_in(path, needs_labels)
    pictures, torn = [], []
    for name in names:
        try:
            pictures.append(_pixels(path / name))
        except (UserError, MemoryError):
            raise
        except Exception as error:  # PIL's OSError, SyntaxError, ValueError, or too many pixels
            torn.append(f"{name} ({error})")
    if torn:
        line = f"{len(torn)} pictures of {path} cannot be read, e.g. {torn[0]}: mend or remove them"
        raise DataError(line, f"data: {len(torn)} pictures cannot be read")
    shapes = sorted({picture.shape for picture in pictures})
    if len(shapes) != 1:
        what = f"images of {len(shapes)} different shapes, e.g. {shapes[:3]}" if shapes else "no images"
        raise DataError(
            f"{path} has {what}{_counted(left_out)}: expected images of one size and one number of "
            "channels",
            f"data: there are pictures of {len(shapes)} shapes"
            if shapes
            else "data: there are no pictures",
        )
    files = tuple(name.as_posix() for name in names)
    if names[0].parent == Path():  # only images, no folders
        return SiteFile(np.stack(pictures), [], None, left_out, files=files)
    folders = [name.parts[0] for name in names]
    labels = class_names(folders, f"the name of a class in {path}", "the name of a class")
    untidy = sum(clean_text(folder) != folder for folder in set(folders))
    tidied = {"names of classes": untidy} if untidy else {}
    return SiteFile(np.stack(pictures), labels, None, left_out, tidied, files)


def _pictures_in(folder: Path, needs_labels: bool) -> tuple[list[Path], dict[str, int]]:
    """Return the pictures CLASS/NAME in order, and the number of other files by reason.

    Without ``needs_labels``, all pictures may instead be in the folder itself.

    Raises
    ------
    DataError : for pictures deeper than CLASS/, and for pictures beside folders
    """

    def fail(error: OSError) -> None:
        raise error

    pictures: list[Path] = []
    deeper: list[Path] = []
    left_out: Counter[str] = Counter()
    for root, _, files in os.walk(folder, onerror=fail, followlinks=True):
        for name in files:
            place = Path(root, name).relative_to(folder)
            reason = _reason(place.parts)
            if reason and (needs_labels or reason != NO_CLASS_FOLDER):
                left_out[reason] += 1
            else:
                (deeper if len(place.parts) > 2 else pictures).append(place)
    if deeper:
        raise DataError(
            f"{folder} has {len(deeper)} pictures deeper than CLASS/, e.g. {min(deeper)}: expected a "
            "folder of images for each class; where these are train/CLASS/ and test/CLASS/, name them: "
            "path=.../train test_path=.../test",
            f"data: {len(deeper)} pictures lie deeper than the folder of a class",
        )
    if len({len(place.parts) for place in pictures}) > 1:
        line = f"{folder} has images beside folders: expected a folder for each class, or images alone"
        raise DataError(line, "data: there are pictures beside the folders of classes")
    return sorted(pictures), dict(sorted(left_out.items()))


def _reason(parts: Sequence[str]) -> str:
    """Return why a file is not an example; empty for a picture."""
    if any(part.startswith(".") for part in parts):
        return "hidden"
    if any(part.lower() in SYSTEM_NAMES for part in parts):
        return "of an operating system"
    if not parts[-1].lower().endswith(PICTURE_SUFFIXES):
        return "no picture"
    return "" if len(parts) > 1 else NO_CLASS_FOLDER


def _counted(left_out: Mapping[str, int]) -> str:
    counts = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    return f" (left out: {counts})" if counts else ""


def _pixels(path: Path) -> np.ndarray:
    from PIL import Image

    from .hub import pixels

    with Image.open(path) as picture:
        picture.load()
        try:
            return pixels(picture, None)
        except UserError as error:
            public = "data: there are pictures of more than 8 bits a channel"
            raise DataError(f"{path}: {error}", public) from error


# Arrays


def _arrays(path: Path, needs_labels: bool) -> SiteFile:
    with np.load(path, allow_pickle=False) as arrays:
        has_labels = needs_labels or "targets" in arrays.files
        if missing := sorted({"inputs", *(["targets"] if has_labels else [])} - set(arrays.files)):
            raise DataError(
                f"{path} has no array {missing[0]!r}: expected inputs [n, ...] and targets [n]",
                f"data: the array {missing[0]} is missing",
            )
        inputs = _array(path, arrays, "inputs")
        targets = _array(path, arrays, "targets") if has_labels else np.empty(inputs.shape[:1])
    if targets.shape != inputs.shape[:1] or inputs.ndim < 2:
        raise DataError(
            f"{path} has inputs of shape {inputs.shape} and targets of shape {targets.shape}: expected "
            "[n, ...] and [n]",
            "data: inputs and targets have other shapes than [n, ...] and [n]",
        )
    if inputs.dtype.kind not in "fiub":
        line = f"the inputs of {path} are {inputs.dtype}: expected numbers"
        raise DataError(line, "data: the inputs are no numbers")
    _check_channels(path, inputs)
    finite = np.isfinite(inputs).all(tuple(range(1, inputs.ndim)))
    if rows := np.flatnonzero(~finite).tolist():
        raise DataError(
            f"the inputs of {path} have NaN or infinite values in {len(rows)} rows, the first of which is "
            f"inputs[{rows[0]}]: fill or remove them",
            f"data: {len(rows)} rows have NaN or infinite values",
        )
    if not has_labels:
        return SiteFile(inputs, [])
    values: Any = targets.tolist()
    labels = class_names(
        values, f"the array 'targets' of {path}", "the array targets", may_miss=not needs_labels
    )
    return SiteFile(inputs, labels if any(labels) else [], tidied=_untidy("labels", values))


def _array(path: Path, arrays: Any, name: str) -> np.ndarray:
    try:
        array: np.ndarray = arrays[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        line = f"the array {name!r} of {path} holds Python objects: expected numbers"
        text = (
            " or text, e.g. targets.astype(str)" if name == "targets" else ", e.g. inputs.astype('float32')"
        )
        raise DataError(line + text, f"data: the array {name} holds objects") from error
    return array


def _check_channels(path: Path, inputs: np.ndarray) -> None:
    """Refuse pictures [n, H, W, C] or [n, H, W], whose rows would be treated as channels."""
    shape = list(inputs.shape[1:])
    last = (
        len(shape) == 3
        and shape[2] in (1, 3, 4)
        and shape[0] > 4
        and (shape[0] == shape[1] or (shape[2] > 1 and shape[1] > 4))
    )
    if last or (len(shape) == 2 and inputs.dtype == np.uint8 and min(shape) > 4):
        change = "np.moveaxis(inputs, 3, 1)" if last else "inputs[:, None]"
        raise DataError(
            f"the inputs of {path} have shape {list(inputs.shape)}, as of pictures without channels in the "
            f"second place: expected [n, channels, height, width], {change}",
            "data: the inputs have their channels in another place than the second",
        )


# A table


def _table(path: Path, label: str | None, columns: Sequence[str] | None, needs_labels: bool) -> SiteFile:
    names, table = _parquet(path) if _kind(path) == ".parquet" else _text(path)
    present = [clean_text(name) for name in names]
    if label is None:
        line = f"{path} is a table: name the column with the labels, --label, one of {present}"
        raise DataError(line, "data: it is a table, and no column of labels is named")
    label = clean_text(label)
    input_columns = (
        [name for name in present if name != label] if columns is None else list(map(clean_text, columns))
    )
    has_labels = needs_labels or label in present
    _check_columns(path, present, [label] if has_labels else [], input_columns)
    if not len(table):
        raise DataError(
            f"{path} has a heading and no rows: expected one for each example",
            "data: the table has no rows",
        )
    inputs = np.empty((len(table), len(input_columns)), np.float64)
    for k, name in enumerate(input_columns):
        inputs[:, k] = _numbers(path, name, table[present.index(name)])
    if not has_labels:
        return SiteFile(inputs, [], tuple(input_columns), tidied=_untidy("column names", names))
    written = table[present.index(label)].tolist() if _kind(path) == ".parquet" else None
    values = _as_written(path, present.index(label)) if written is None else written
    where, public = f"column {label!r} of {path}", f"column {label!r} of the schema"
    labels = class_names(values, where, public, may_miss=not needs_labels)
    tidied = {**_untidy("column names", names), **_untidy("labels", values)}
    return SiteFile(inputs, labels if any(labels) else [], tuple(input_columns), tidied=tidied)


def _untidy(what: str, values: Sequence[object]) -> dict[str, int]:
    count = sum(clean_text(value) != value for value in values if isinstance(value, str))
    return {what: count} if count else {}


def _parquet(path: Path) -> tuple[list[str], Any]:
    """Return the names of a table's columns, and the table with numbered columns."""
    import pandas as pd

    table = pd.read_parquet(path)
    names = [str(name) for name in table.columns]
    return names, table.set_axis(range(len(names)), axis=1)


def _text(path: Path) -> tuple[list[str], Any]:
    import pandas as pd

    form: dict[str, Any] = _form(path)
    names = (
        pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **form).iloc[0].tolist()
    )
    if all(map(_is_number, names)) and names != [str(k) for k in range(len(names))]:
        raise DataError(
            f"{path} has no heading (its first row is {names[:5]}): name the columns in the first row",
            "data: the table has no heading",
        )
    if len(names) == 1 and (other := [sign for sign in ",;\t|" if sign in names[0]]):
        raise DataError(
            f"{path} has one column, {names[0]!r}: its fields seem to be separated by {other[0]!r}; "
            f"expected {form['sep']!r} (.csv: a comma, .tsv: a tab)",
            "data: the table has a single column",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # it would drop what has no heading
            table = pd.read_csv(path, index_col=False, low_memory=False, **form)
    except pd.errors.ParserWarning as error:
        line = f"{path} has rows with more fields than its heading: give each column a name"
        raise DataError(line, "data: the table has rows with more fields than its heading") from error
    names = [name if name.strip() else f"Unnamed: {k}" for k, name in enumerate(names)]
    return names, table.set_axis(range(len(names)), axis=1)


def _as_written(path: Path, column: int) -> list[str]:
    """Return a text table's labels as written: 01 is not 1, and None may be a class."""
    return list(_cells(path, usecols=[column]).iloc[:, 0])


def read_cells(path: Path) -> Any:
    """Return a table as a DataFrame, with the cells of .csv and .tsv as written."""
    import pandas as pd

    return pd.read_parquet(path) if _kind(path) == ".parquet" else _cells(path)


def _cells(path: Path, **more: Any) -> Any:
    import pandas as pd

    return pd.read_csv(path, dtype=str, keep_default_na=False, index_col=False, **more, **_form(path))


def _form(path: Path) -> dict[str, Any]:
    packed = "gzip" if path.name.lower().endswith(".gz") else None
    return {"sep": SEPARATORS[_kind(path)], "compression": packed, "encoding": "utf-8-sig"}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_columns(path: Path, present: list[str], labels: list[str], input_columns: list[str]) -> None:
    """Refuse a table without a wanted column, or with an ambiguous or unnamed one."""
    if missing := [name for name in (*labels, *input_columns) if name not in present]:
        hint = "; is its heading missing?" if any(map(_is_number, present)) else ""
        raise DataError(
            f"{path} has no column {missing[0]!r}: it has {present}{hint}",
            f"data: {len(missing)} columns of the schema are missing",
        )
    if twice := [name for name in (*labels, *input_columns) if present.count(name) > 1]:
        raise DataError(
            f"{path} has {present.count(twice[0])} columns {twice[0]!r}: expected one; rename or remove the "
            "others",
            f"data: {len(set(twice))} columns of the schema are there more than once",
        )
    if unnamed := [name for name in input_columns if ROW_NUMBER_COLUMN.fullmatch(name)]:
        raise DataError(
            f"{path} has a column without a name, {unnamed[0]!r}: are these row numbers, which may give "
            "the label away? Remove it (pandas: to_csv(..., index=False)), or name it",
            f"data: {len(unnamed)} columns have no name",
        )
    if not input_columns:
        line = f"{path} has no column beside the label {labels}: expected one or more, with numbers"
        raise DataError(line, "data: the table has no column beside the label")


def _numbers(path: Path, name: str, column: Any) -> np.ndarray:
    """Return a column's numbers, [n] in float64."""
    import pandas as pd

    what, public = f"column {name!r} of {path}", f"data: column {name!r} of the schema"
    is_numeric = pd.api.types.is_numeric_dtype(column)
    empty = column.isna()
    if not is_numeric:
        empty |= column.astype(str).str.strip() == ""
    if count := int(empty.sum()):
        line = f"{what} is empty in {count} rows: fill or remove them"
        raise DataError(line, f"{public} is empty in {count} rows")
    if not is_numeric and pd.api.types.infer_dtype(column) == "decimal":  # databases export these
        column, is_numeric = column.astype(float), True
    if not is_numeric:
        other = pd.to_numeric(column.astype(str), errors="coerce").isna().to_numpy()
        rows = np.flatnonzero(other if other.any() else ~other)
        held = f"{str(column.iloc[rows[0]])!r} in row {rows[0] + 1}, no number in {len(rows)} rows"
        raise DataError(
            f"{what} holds {held}: expected numbers", f"{public} holds no number in {len(rows)} rows"
        )
    numbers: np.ndarray = column.to_numpy(dtype=np.float64)
    if len(rows := np.flatnonzero(~np.isfinite(numbers))):
        line = f"{what} is infinite in {len(rows)} rows, the first row {rows[0] + 1}: fill or remove them"
        raise DataError(line, f"{public} is infinite in {len(rows)} rows")
    return numbers
