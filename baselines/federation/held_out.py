"""The rows that a site holds out, as a file: ``predict`` measures on it what the site has reported."""

import csv
import io
import os
import tempfile
from pathlib import Path

import numpy as np
from torch import Tensor

from baselines.datasets import site_files
from baselines.datasets.schema import Schema
from baselines.errors import UserError


def check_target(target: Path, data: Path, schema: Schema, index: Tensor) -> None:
    """Refuse a file that cannot hold a site's held-out rows.

    Raises
    ------
    UserError : in one line
    """
    kind = ".npz" if schema.columns is None else ".csv"
    if not len(index):
        raise UserError("--held-out: the experiment holds no row out: set node_test_fraction")
    if target.suffix.lower() != kind:
        raise UserError(f"--held-out {target}: expected a {kind} file")
    if target.resolve().is_relative_to(data):
        raise UserError(f"--held-out {target} lies in the data: choose another file")
    if not target.parent.is_dir():
        raise UserError(f"--held-out {target}: there is no folder {target.parent}")


def write(target: Path, data: Path, schema: Schema, index: Tensor) -> None:
    """Write the rows ``index`` of the data, their labels and no other column, as a private file."""
    rows, chosen = site_files.read(data, schema.label, schema.columns), index.tolist()
    labels = [rows.labels[k] for k in chosen]
    if schema.columns is None:
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, inputs=rows.inputs[chosen], targets=np.array(labels))
        content = stream.getvalue()
    else:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow([*schema.columns, schema.label])
        for values, label in zip(rows.inputs[chosen].tolist(), labels, strict=True):
            writer.writerow([*(repr(value).removesuffix(".0") for value in values), label])
        content = table.getvalue().encode()
    opened, fresh = tempfile.mkstemp(dir=target.parent)  # 0600
    try:
        with open(opened, "wb") as file:
            file.write(content)
        os.replace(fresh, target)
    finally:
        Path(fresh).unlink(missing_ok=True)
