"""Labels: one rule for what a file holds, whatever the kind of file."""

import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset as Rows

from baselines.datasets import hub, site_files, tables
from baselines.datasets.labels import class_names, list_classes
from baselines.errors import DataError

HUB = sys.modules[hub.__module__]  # the package's `hub` is the function
COUNTED = [1, 2, 5, 10, 2, 1]
SPELT: dict[str, list[Any]] = {
    "whole numbers": COUNTED,
    "floats": [float(k) for k in COUNTED],
    "text": [str(k) for k in COUNTED],
    "text of floats": [f"{k}.0" for k in COUNTED],
    "bytes": [str(k).encode() for k in COUNTED],
    "text with blanks": [f" {k} " for k in COUNTED],
}


def of_table(suffix: str) -> Callable[[Path, list[Any]], list[str]]:
    def read(place: Path, labels: list[Any]) -> list[str]:
        table = pd.DataFrame({"a": range(len(labels)), "y": labels})
        path = place / f"t.{suffix}"
        table.to_parquet(path) if suffix == "parquet" else table.to_csv(path, index=False)
        return site_files.read(path, "y").labels

    return read


def of_arrays(place: Path, labels: list[Any]) -> list[str]:
    np.savez(place / "t.npz", inputs=np.zeros((len(labels), 2)), targets=np.array(labels))
    return site_files.read(place / "t.npz").labels


def of_hub(place: Path, labels: list[Any]) -> list[str]:
    return [str(label) for label in HUB._labels(Rows.from_dict({"y": labels}), "y", "set")[0].tolist()]


READERS = {"csv": of_table("csv"), "parquet": of_table("parquet"), "npz": of_arrays, "hub": of_hub}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("spelling", SPELT)
def test_a_number_is_one_class_in_every_spelling(reader: str, spelling: str, tmp_path: Path) -> None:
    if (reader, spelling) == ("csv", "bytes"):
        pytest.skip("a table of text holds no bytes")
    names = READERS[reader](tmp_path, SPELT[spelling])
    assert names == ["1", "2", "5", "10", "2", "1"]
    assert list_classes(names, "y") == ["1", "2", "5", "10"]  # numbers by size, not 1, 10, 2, 5


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf"), "", "  ", "nan", "<NA>", b"", pd.NA])
def test_nothing_is_no_class(missing: object) -> None:
    with pytest.raises(DataError, match=r"^here is empty in 2 rows: fill or remove them$") as error:
        class_names(["a", missing, missing], "here", "the label")
    assert error.value.public == "data: the label is empty in 2 rows"


def test_texts_keep_what_a_person_wrote_but_blanks_and_how_signs_are_stored() -> None:
    parts = unicodedata.normalize("NFD", "é")
    assert class_names(["01", "1", " é", parts, "None", "-1.0", True], "", "") == [
        *("01", "1", "é", "é", "None", "-1", "True")
    ]
    assert list_classes(["b", "-1", "a", "-2", "0.5", "b"], "") == ["a", "b", "-2", "-1", "0.5"]


def test_a_single_class_and_ids_are_refused() -> None:
    with pytest.raises(DataError, match="single class, 'a'"):
        list_classes(["a", "a"], "here")
    ids = [str(10**10 + k) for k in range(90)]
    with pytest.raises(DataError, match=r"holds 90 classes in 90 rows.*expected at most 45; are these ids"):
        list_classes(ids, "here")
    assert len(list_classes(ids[:20], "here")) == 20  # a small sample of many classes
    assert len(list_classes(ids + ids, "here")) == 90


def test_a_column_of_the_hub_that_declares_its_classes_keeps_their_numbers() -> None:
    images = np.zeros((3, 1, 2, 2), np.uint8)
    some = [tables.Table(images, np.array([0, 2, 5]), None, has_numbers=True)]
    assert tables.number_labels(some, "y")[0].labels.tolist() == [0, 2, 5]
    tables_read = [tables.Table(images, np.array(["0", "2", "5"]), None)]
    assert tables.number_labels(tables_read, "y")[0].labels.tolist() == [0, 1, 2]
