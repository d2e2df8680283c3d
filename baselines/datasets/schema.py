"""Schema: what all sites of a federation have agreed on about their data, without any of the data.

It travels with the experiment. A site whose data do not fit it takes no part; labels are never renumbered,
and every site normalises with the schema's mean and deviation, not with its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from baselines.errors import DataError, UserError

from .labels import class_name

DTYPES = ("uint8", "float32", "float64")
FIELDS = "classes, shape, mean, std and dtype, for tables also columns, label and, if you like, units"


@dataclass(frozen=True)
class Schema:
    """What a site's examples look like.

    Parameters
    ----------
    classes : names of the labels; a label's number is its position here
    shape : of one input, e.g. [channels, height, width]; for tables the number of columns
    mean, std : one number per channel, or column; uint8 counts as x / 255
    dtype : of the raw inputs: uint8, float32 or float64
    columns : of tables, in the order in which a model takes them; None for images and arrays
    label : the column of tables that holds the labels
    units : of each column, for people to compare; "" for a column without one. They change no number
    """

    classes: tuple[str, ...]
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: str
    columns: tuple[str, ...] | None = None
    label: str | None = None
    units: tuple[str, ...] | None = field(default=None, repr=False)  # prepared data do not depend on it

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
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
        """What raw inputs are divided by before they are normalised."""
        return 255.0 if self.dtype == "uint8" else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as plain lists, numbers and texts."""
        told = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}
        return {key: value for key, value in told.items() if value is not None}

    def numbers(self, labels: Sequence[str]) -> np.ndarray:
        """Return the numbers of the names of labels, [n] in int64.

        Raises
        ------
        DataError : for a label that is no class of the schema
        """
        number = {class_name(name): k for k, name in enumerate(self.classes)}
        if unknown := sorted(set(labels) - number.keys()):
            raise DataError(
                f"the labels {unknown[:3]} are not in the schema's classes {list(self.classes)[:10]}: "
                "rename or remove these examples, or agree on another schema",
                f"schema: {len(unknown)} labels are not in the schema",
            )
        return np.array([number[label] for label in labels], dtype=np.int64)


def schema_of(told: Mapping[str, Any]) -> Schema:
    """Return the schema that a mapping describes.

    Raises
    ------
    UserError : for a field that is unknown, missing, or of another kind
    """
    known = set(Schema.__dataclass_fields__)
    if unknown := sorted(set(map(str, told)) - known):
        raise UserError(f"the schema has an unknown field {unknown[0]!r}: expected {FIELDS}")
    try:
        columns, label, units = told.get("columns"), told.get("label"), told.get("units")
        return Schema(
            tuple(map(str, told["classes"])),
            tuple(map(int, told["shape"])),
            tuple(map(float, told["mean"])),
            tuple(map(float, told["std"])),
            str(told["dtype"]),
            None if columns is None else tuple(map(str, columns)),
            None if label is None else str(label),
            None if units is None else tuple("" if unit is None else str(unit) for unit in units),
        )
    except KeyError as error:
        raise UserError(f"the schema has no {error.args[0]}: expected {FIELDS}") from error
    except (TypeError, ValueError) as error:
        raise UserError(f"the schema cannot be read ({error}): expected {FIELDS}") from error
