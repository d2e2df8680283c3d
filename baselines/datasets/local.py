"""local: the sites' own data. The experiment has the schema, each node the path of its data.

The data set itself is empty: the server has no data and builds the model from the schema, and the nodes
evaluate it on their held-out data (``node_test_fraction``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from baselines.errors import DataError, UserError
from clients import Classification, Normalize

from . import site_files
from .cache import Arrays, load_cached
from .dataset import Dataset
from .labels import RULE_VERSION, class_name, list_classes

# Schema: the sites' agreement on the form of their data, without any data.
#
# It is sent with the experiment. A site whose data do not fit it does not take part. Labels are never
# renumbered, and every site normalises with the schema's mean and deviation, not with its own.


DTYPES = ("uint8", "float32", "float64")
FIELDS = "classes, shape, mean, std and dtype, for tables also columns, label and, if you like, units"


@dataclass(frozen=True)
class Schema:
    """The form of the sites' examples.

    Parameters
    ----------
    classes : names of the labels; a label's number is its position here
    shape : of one input, e.g. [channels, height, width]; for tables the number of columns
    mean, std : one number per channel, or column; uint8 counts as x / 255
    dtype : of the raw inputs: uint8, float32 or float64
    columns : of tables, in the order in which a model takes them; None for images and arrays
    label : the column of tables that holds the labels
    units : of each column, only for people to compare; "" for a column without one
    """

    classes: tuple[str, ...]
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: str
    columns: tuple[str, ...] | None = None
    label: str | None = None
    units: tuple[str, ...] | None = field(default=None, repr=False)  # prepared data do not depend on units

    def __post_init__(self) -> None:
        """Refuse contradictory fields."""
        names = {class_name(name) for name in self.classes}
        if len(names) < max(2, len(self.classes)) or None in names:
            raise UserError(
                f"the schema's classes are {list(self.classes)}: expected two or more, each once (1 and "
                "1.0 are one, nan is none)"
            )
        if self.dtype not in DTYPES:
            raise UserError(f"the schema's dtype={self.dtype} is unknown: expected {', '.join(DTYPES)}")
        if not self.shape or len(self.mean) != self.shape[0] or len(self.std) != self.shape[0]:
            raise UserError(
                f"the schema has shape {list(self.shape)}, {len(self.mean)} means and {len(self.std)} "
                "deviations: expected one of each per channel or column"
            )
        if not all(0 < one < float("inf") for one in self.std):
            raise UserError(f"the schema's std={list(self.std)} is out of range: expected numbers above 0")
        if self.columns and (self.label in self.columns or len(set(self.columns)) < len(self.columns)):
            raise UserError(
                f"the schema's columns {list(self.columns)} hold the label {self.label!r}, or one twice: "
                "expected inputs, each once"
            )
        if self.columns is not None and (self.label is None or self.shape != (len(self.columns),)):
            raise UserError(
                f"the schema has {len(self.columns)} columns, shape {list(self.shape)} and "
                f"label={self.label}: expected a shape of one number, how many columns, and a label column"
            )

        if self.units is not None and len(self.units) != len(self.columns or ()):
            raise UserError(
                f"the schema has {len(self.units)} units and {len(self.columns or ())} columns: expected "
                'one for each column, "" where there is none'
            )

    @property
    def scale(self) -> float:
        """The divisor of raw inputs before they are normalised."""
        return 255.0 if self.dtype == "uint8" else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as plain lists, numbers and texts."""
        values = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}
        return {key: value for key, value in values.items() if value is not None}

    def numbers(self, labels: Sequence[str]) -> np.ndarray:
        """Return each label's class number, [n] in int64.

        Raises
        ------
        DataError : for a label that is not a class of the schema
        """
        return number_names(labels, self.classes)


def number_names(labels: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """Return each label's position in ``classes``, [n] in int64.

    Raises
    ------
    DataError : for a label that is no class
    """
    number = {class_name(name): k for k, name in enumerate(classes)}
    if unknown := sorted(set(labels) - number.keys()):
        raise DataError(
            f"the labels {unknown[:3]} are not in the schema's classes {list(classes)[:10]}: rename or "
            "remove these examples, or agree on another schema",
            f"schema: {len(unknown)} labels are not in the schema",
        )
    return np.array([number[label] for label in labels], dtype=np.int64)


def schema_of(values: Mapping[str, Any]) -> Schema:
    """Return the schema that a mapping describes.

    Raises
    ------
    UserError : for a field that is unknown, missing, or of another type
    """
    known = set(Schema.__dataclass_fields__)
    if unknown := sorted(set(map(str, values)) - known):
        raise UserError(f"the schema has an unknown field {unknown[0]!r}: expected {FIELDS}")
    try:
        columns, label, units = values.get("columns"), values.get("label"), values.get("units")
        return Schema(
            tuple(map(str, values["classes"])),
            tuple(map(int, values["shape"])),
            tuple(map(float, values["mean"])),
            tuple(map(float, values["std"])),
            str(values["dtype"]),
            None if columns is None else tuple(map(str, columns)),
            None if label is None else str(label),
            None if units is None else tuple("" if unit is None else str(unit) for unit in units),
        )
    except KeyError as error:
        raise UserError(f"the schema has no {error.args[0]}: expected {FIELDS}") from error
    except (TypeError, ValueError) as error:
        raise UserError(f"the schema cannot be read ({error}): expected {FIELDS}") from error


@dataclass(frozen=True)
class SiteData:
    """Read a site's data, and refuse what does not fit the schema.

    Parameters
    ----------
    schema : the sites' agreed schema
    cache : the folder for prepared data, as each message to a deployed node starts a process; None: no cache
    has_fallback : whether the user's own cache folder may be used if ``cache`` is not writable
    """

    schema: Schema
    cache: Path | None
    has_fallback: bool = True

    def __call__(self, path: Path) -> Arrays:
        """Return a site's ``inputs`` and ``targets``, prepared once and then read from the cache.

        Raises
        ------
        DataError : for data that do not fit, in one line
        """
        try:
            path = path.resolve()
            if self.cache is None:
                return {key: torch.from_numpy(array) for key, array in self.read(path).items()}
            settings = (site_files.READING_VERSION, RULE_VERSION, self.schema, str(path))
            name = f"site-{path.stem}"
            return load_cached(
                *(name, settings, self.cache, [path], lambda: self.read(path)),
                whole=False,
                has_fallback=self.has_fallback,
            )
        except (OSError, ValueError, RuntimeError) as error:  # an invalid or unreadable path
            raise DataError(f"{path} cannot be read: {error}", "data: it cannot be read") from error

    def read(self, path: Path) -> dict[str, np.ndarray]:
        """Return ``inputs`` and ``targets`` without the cache."""
        rows = self.rows(path)
        return {"inputs": rows.inputs, "targets": self.schema.numbers(rows.labels)}

    def rows(self, path: Path, *, needs_labels: bool = True) -> site_files.SiteFile:
        """Read the data at ``path``, with inputs in the schema's dtype.

        Without ``needs_labels``, labels may be missing: a table without the column, an ``.npz`` file
        without targets, a folder of images without folders. They are then empty.

        Raises
        ------
        DataError : for data that do not fit, in one line
        """
        schema = self.schema
        if site_files.is_table(path) != (schema.columns is not None):
            what = "is a table" if site_files.is_table(path) else "is not a table"
            raise DataError(
                f"{path} {what}, and the schema has {schema.columns or 'no columns'}",
                f"data: {'a table' if site_files.is_table(path) else 'no table'}, unlike the schema",
            )
        content = site_files.read(path, schema.label, schema.columns, needs_labels)
        inputs = _as_dtype(path, content, schema.dtype)
        if inputs.dtype != schema.dtype:
            line = f"the data at {path} are {inputs.dtype}, and the schema says {schema.dtype}"
            raise DataError(line, "data: the inputs have another dtype than the schema's")
        if inputs.shape[1:] != schema.shape:
            raise DataError(
                f"the inputs at {path} have shape {list(inputs.shape[1:])}, and the schema says "
                f"{list(schema.shape)}",
                "data: the inputs have another shape than the schema's",
            )
        if len(inputs) == 0:
            raise DataError(f"there are no examples at {path}", "data: there are no examples")
        return content._replace(inputs=inputs)


def _as_dtype(path: Path, content: site_files.SiteFile, dtype: str) -> np.ndarray:
    """Return a site's inputs; a table's, and those of a dtype that no schema has, as ``dtype``.

    Raises
    ------
    DataError : for values that ``dtype`` cannot hold
    """
    inputs = content.inputs
    if not content.columns and str(inputs.dtype) in DTYPES:
        return inputs
    with np.errstate(all="ignore"):
        converted = inputs.astype(dtype)
    lost = converted != inputs if dtype == "uint8" else ~np.isfinite(converted)
    if count := int(lost.reshape(len(lost), -1).any(1).sum()):
        raise DataError(
            f"{path} has values that {dtype}, the schema's dtype, cannot hold in {count} rows: agree on "
            "another",
            f"data: {count} rows have values that the schema's dtype cannot hold",
        )
    return converted


def local(schema: dict[str, Any] | str | None, cache: str) -> Dataset:
    """Return a data set without rows that can read a site's data.

    Parameters
    ----------
    schema : the fields of :class:`~baselines.datasets.local.Schema`
    cache : the folder for prepared data
    """
    if schema is None:
        raise UserError(
            "dataset=local needs a schema: write one with python -m baselines.federation schema PATH, and "
            "set dataset.schema=schema.yaml"
        )
    if isinstance(schema, str):  # nodes open no files that others name
        raise UserError(
            f"dataset.schema={schema} names a file, which only baselines.run and baselines.federation "
            "read: write the schema itself, dataset.schema={classes: [...], ...}"
        )
    agreed = schema_of(schema)
    inputs = torch.zeros(0, *agreed.shape, dtype=getattr(torch, agreed.dtype))
    targets = torch.zeros(0, dtype=torch.int64)
    return Dataset(
        *(inputs, targets, inputs, targets),
        task=Classification(),
        transform=Normalize(agreed.mean, agreed.std, agreed.scale),
        num_classes=len(agreed.classes),
        site=SiteData(agreed, Path(cache)),
    )


def measure_data(path: Path, label: str | None) -> Schema:
    """Return the schema of the data at ``path``, with its classes, mean and deviation.

    Raises
    ------
    DataError : for data that cannot be read
    """
    return measure_content(path, site_files.read(path, label), label)


def _check_square(path: Path, inputs: np.ndarray) -> None:
    """Refuse what looks like grey pictures without channels; a hand-written schema may allow it."""
    if inputs.ndim == 3 and 8 <= inputs.shape[1] == inputs.shape[2]:
        raise DataError(
            f"the inputs of {path} have shape {list(inputs.shape)}, as of grey pictures without channels: "
            "expected [n, channels, height, width], inputs[:, None]; if the rows are channels, write the "
            "schema by hand",
            "data: the inputs have no channels",
        )


def measure_content(path: Path, content: site_files.SiteFile, label: str | None) -> Schema:
    """Return the schema of the content read from ``path``."""
    if not len(content.inputs):
        raise DataError(f"there are no examples at {path}", "data: there are no examples")
    _check_square(path, content.inputs)
    classes = list_classes(content.labels, f"column {label!r} of {path}" if content.columns else str(path))
    dtype = str(content.inputs.dtype)
    axes = (0, *range(2, content.inputs.ndim))
    with np.errstate(all="ignore"):
        values = content.inputs.astype(np.float64) / (255.0 if dtype == "uint8" else 1.0)
        mean, std = values.mean(axes), values.std(axes)
        narrow = np.abs(values - values.astype(np.float32)).max(axes)
    std[std <= 1e-12 * np.abs(values).max(axes)] = 1.0  # constant up to the mean's rounding
    if not np.isfinite(std).all():
        raise DataError(f"{path} has numbers too large to be measured", "data: there are too large numbers")
    if content.columns or dtype not in DTYPES:
        dtype = "float32" if (narrow < 1e-3 * std).all() else "float64"
    digits = [5 - math.floor(math.log10(one)) for one in std]  # six significant ones of the deviation
    return schema_of(
        {
            "classes": classes,
            "shape": content.inputs.shape[1:],
            "mean": [round(float(one), n) for one, n in zip(mean, digits, strict=True)],
            "std": [round(float(one), n) for one, n in zip(std, digits, strict=True)],
            "dtype": dtype,
        }
        | ({"columns": content.columns, "label": label} if content.columns else {})
    )
