"""local: data of the sites' own. The experiment brings the schema, each node its path.

The data set itself is empty: a server that holds no data builds the model from the schema, and the nodes
judge it on the share of their data that they hold out (``node_test_fraction``).
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from baselines.errors import UserError
from clients import Classification, Normalize

from . import site_files
from .cache import Arrays, cached
from .dataset import Dataset
from .schema import Schema, schema_of
from .site_files import SiteFile


@dataclass(frozen=True)
class SiteData:
    """Reads a site's data, and refuses what does not fit the schema.

    Parameters
    ----------
    schema : what all sites have agreed on
    cache : the folder for prepared data: each message to a deployed node starts a process
    """

    schema: Schema
    cache: Path

    def __call__(self, path: Path) -> Arrays:
        """Return a site's ``inputs`` and ``targets``, prepared once and read from the cache thereafter.

        Raises
        ------
        UserError : for data that do not fit, in one line
        """
        path = path.resolve()
        settings = (self.schema, str(path))
        name = f"site-{path.stem}"
        return cached(name, settings, self.cache, [path], lambda: self.read(path), whole=False)

    def read(self, path: Path) -> dict[str, np.ndarray]:
        """Return the same without the cache."""
        rows = self.rows(path)
        return {"inputs": rows.inputs, "targets": self.schema.numbers(rows.labels)}

    def rows(self, path: Path, *, needs_labels: bool = True) -> SiteFile:
        """Return what lies at ``path``, its inputs as the schema has them.

        Without ``needs_labels`` there need be none: a table without the column, an ``.npz`` file without
        targets, a folder of images without folders. The labels are then empty.

        Raises
        ------
        UserError : for data that do not fit, in one line
        """
        schema = self.schema
        if site_files.is_table(path) != (schema.columns is not None):
            what = "is a table" if site_files.is_table(path) else "is no table"
            raise UserError(f"{path} {what}, and the schema has {schema.columns or 'no columns'}")
        found = site_files.read(path, schema.label, schema.columns, needs_labels)
        inputs = found.inputs.astype(schema.dtype) if found.columns else found.inputs
        if inputs.dtype != schema.dtype:
            raise UserError(f"the data at {path} are {inputs.dtype}, and the schema says {schema.dtype}")
        if inputs.shape[1:] != schema.shape:
            raise UserError(
                f"the inputs at {path} have shape {list(inputs.shape[1:])}, and the schema says "
                f"{list(schema.shape)}"
            )
        if len(inputs) == 0:
            raise UserError(f"there are no examples at {path}")
        return found._replace(inputs=inputs)


def local(schema: dict[str, Any] | str | None, cache: str) -> Dataset:
    """Return a data set without rows that knows how a site's are read.

    Parameters
    ----------
    schema : the fields of :class:`~baselines.datasets.schema.Schema`
    cache : the folder for prepared data
    """
    if schema is None:
        raise UserError(
            "dataset=local needs a schema: write one with python -m baselines.federation schema PATH, and "
            "set dataset.schema=schema.yaml"
        )
    if isinstance(schema, str):  # no node opens a file that somebody else has named
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


def _place(label: str) -> tuple[int, str]:
    """Say where a class stands: 2 before 10, as their numbers would."""
    return (int(label) if label.isdecimal() else -1, label)


def measured(path: Path, label: str | None) -> Schema:
    """Return the schema of the data at ``path``: classes by name, in order, and mean and deviation.

    Raises
    ------
    UserError : for data that cannot be read
    """
    found = site_files.read(path, label)
    if not len(found.inputs):
        raise UserError(f"there are no examples at {path}")
    dtype = str(found.inputs.dtype)
    axes = (0, *range(2, found.inputs.ndim))
    values = found.inputs.astype(np.float64) / (255.0 if dtype == "uint8" else 1.0)
    mean, std = values.mean(axes), values.std(axes)
    std[std <= 1e-12 * np.abs(values).max(axes)] = 1.0  # constant, but for the mean's rounding
    if found.columns and (np.abs(values - values.astype(np.float32)).max(axes) < 1e-3 * std).all():
        dtype = "float32"
    digits = [5 - math.floor(math.log10(one)) for one in std]  # six of the deviation's
    return schema_of(
        {
            "classes": sorted(set(found.labels), key=_place),
            "shape": found.inputs.shape[1:],
            "mean": [round(float(one), n) for one, n in zip(mean, digits, strict=True)],
            "std": [round(float(one), n) for one, n in zip(std, digits, strict=True)],
            "dtype": dtype,
        }
        | ({"columns": found.columns, "label": label} if found.columns else {})
    )
