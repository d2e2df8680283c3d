"""Data of the sites' own: what is read, what is refused, and that labels keep their numbers."""

import os
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

from baselines.datasets import site_files
from baselines.datasets.local import SiteData, local, measured
from baselines.datasets.schema import schema_of
from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.schema_file import inlined

ARRAYS = {"classes": ["a", "b", "c"], "shape": [2], "mean": [1, 0], "std": [2, 1], "dtype": "float32"}
TABLE = ARRAYS | {"columns": ["age", "dose"], "label": "kind"}
ROWS = {"kind": ["c", "a"], "dose": [0.5, 1.5], "age": [40, 50]}


def arrays(path: Path, targets: list[object], shape: tuple[int, ...] = (2,), kind: str = "float32") -> Path:
    np.savez(path, inputs=np.ones((len(targets), *shape), kind), targets=np.array(targets))
    return path


def table(path: Path, **changed: object) -> Path:
    frame = pd.DataFrame(ROWS | changed)
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return path


def images(path: Path, colours: dict[str, int], size: int = 4) -> Path:
    for name, colour in colours.items():
        (path / name).mkdir(parents=True)
        Image.new("RGB", (size, size), (colour, 0, 0)).save(path / name / "0.png")
    return path


def read(path: Path, schema: dict[str, object], cache: Path) -> dict[str, torch.Tensor]:
    site = local(schema, str(cache)).site
    assert site is not None
    return dict(site(path))


def test_labels_keep_the_numbers_of_the_schema(tmp_path: Path) -> None:
    found = read(arrays(tmp_path / "some.npz", ["c", "c", "b"]), ARRAYS, tmp_path)  # this site has no a
    assert found["targets"].tolist() == [2, 2, 1]
    assert found["inputs"].shape == (3, 2)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_is_read_in_the_schemas_order_of_columns(suffix: str, tmp_path: Path) -> None:
    found = read(table(tmp_path / f"t.{suffix}"), TABLE, tmp_path)
    assert found["targets"].tolist() == [2, 0]
    assert found["inputs"].tolist() == [[40, 0.5], [50, 1.5]]
    assert found["inputs"].dtype == torch.float32


def test_a_folder_of_images_has_a_folder_for_each_class(tmp_path: Path) -> None:
    folder = images(tmp_path / "own", {"b": 255, "c": 0})
    schema = {"classes": "abc", "shape": [3, 4, 4], "mean": [0] * 3, "std": [1] * 3, "dtype": "uint8"}
    found = read(folder, schema, tmp_path / "cache")
    assert found["targets"].tolist() == [1, 2]
    assert found["inputs"][:, 0, 0, 0].tolist() == [255, 0]


def test_a_node_opens_no_file_that_an_experiment_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dataset.schema=/etc/passwd names a file"):
        local("/etc/passwd", str(tmp_path))


def test_every_site_normalises_as_the_schema_says(tmp_path: Path) -> None:
    data = local(ARRAYS, str(tmp_path))
    assert data.transform(torch.tensor([[3.0, 5.0]])).tolist() == [[1.0, 5.0]]  # (3 - 1) / 2, (5 - 0) / 1
    assert len(data.train_targets) == len(data.test_targets) == 0


def test_what_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    whole = arrays(tmp_path / "whole.npz", ["a"])
    csv = table(tmp_path / "whole.csv")
    refused = {
        (arrays(tmp_path / "1.npz", ["a", "d"]), "all"): "the labels ['d'] are not in the schema's classes",
        (arrays(tmp_path / "2.npz", ["a"], (3,)), "all"): "have shape [3], and the schema says [2]",
        (arrays(tmp_path / "3.npz", ["a"], kind="float64"), "all"): "are float64, and the schema says",
        (arrays(tmp_path / "4.npz", []), "all"): "there are no examples",
        (whole, "columns"): "is no table, and the schema has ('age', 'dose')",
        (csv, "all"): "is a table, and the schema has no columns",
        (table(tmp_path / "5.csv", age=["x", "y"]), "columns"): "expected numbers",
        (table(tmp_path / "6.csv", age=[None, 1.0]), "columns"): "is empty in 1 rows",
        (tmp_path / "nowhere", "all"): "there is no data at",
        (tmp_path / "text.txt", "all"): "is of an unknown kind",
        (images(tmp_path / "sizes", {"a": 0}, 2).parent / "sizes", "columns"): "is no table",
    }
    (tmp_path / "text.txt").touch()
    for (path, kind), said in refused.items():
        with pytest.raises(UserError) as error:
            read(path, TABLE if kind == "columns" else ARRAYS, tmp_path)
        assert said in str(error.value)
        assert "\n" not in str(error.value)


def test_a_schema_needs_the_name_of_a_tables_column_of_labels(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name the column with the labels, --label"):
        measured(table(tmp_path / "whole.csv"), None)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    pd.DataFrame({"kind": ["a"], "age": [1]}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError, match="has no column 'dose': expected one of"):
        read(tmp_path / "t.csv", TABLE, tmp_path)


def test_data_are_prepared_once_and_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reads, read_file = arrays(tmp_path / "own.npz", ["a", "b"]), [], site_files.read
    monkeypatch.setattr(site_files, "read", lambda *told: reads.append(told) or read_file(*told))
    for _ in range(2):  # each message to a deployed node starts a process
        assert read(path, ARRAYS, tmp_path)["targets"].tolist() == [0, 1]
    assert len(reads) == 1
    arrays(path, ["c", "b"])
    os.utime(path, (1, 1))
    assert read(path, ARRAYS, tmp_path)["targets"].tolist() == [2, 1]


def test_an_image_of_a_folder_that_changes_is_noticed(tmp_path: Path) -> None:
    folder = images(tmp_path / "own", {"b": 255})
    schema = {"classes": "abc", "shape": [3, 4, 4], "mean": [0] * 3, "std": [1] * 3, "dtype": "uint8"}
    read(folder, schema, tmp_path / "cache")
    Image.new("RGB", (4, 4), (7, 0, 0)).save(folder / "b" / "0.png")
    os.utime(folder / "b" / "0.png", (1, 1))
    assert read(folder, schema, tmp_path / "cache")["inputs"][0, 0, 0, 0] == 7


def test_units_belong_to_columns_and_change_nothing_else() -> None:
    plain, schema = schema_of(TABLE), schema_of(TABLE | {"units": ["years", None]})
    assert "units" not in plain.as_dict()
    assert schema.as_dict() == plain.as_dict() | {"units": ["years", ""]}
    assert repr(schema) == repr(plain)  # prepared data are found by it
    assert schema_of(schema.as_dict()) == schema
    for wrong in (TABLE | {"units": ["years"]}, ARRAYS | {"units": ["years", "mg"]}):
        with pytest.raises(UserError, match="units"):
            schema_of(wrong)


def test_units_travel_with_the_experiment(tmp_path: Path) -> None:
    file = tmp_path / "schema.yaml"
    told = TABLE | {"units": ["years", "mg/dl, 'fasting'"]}
    file.write_text(OmegaConf.to_yaml(OmegaConf.create(told)))
    sent = config.load(shlex.join(["dataset=local", inlined(f"dataset.schema={file}")]))
    assert schema_of(OmegaConf.to_container(sent.dataset.schema)).units == ("years", "mg/dl, 'fasting'")  # type: ignore[arg-type]


def test_labels_are_optional_only_where_they_may_be(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", inputs=np.ones((3, 2), "float32"))
    pd.DataFrame({"age": [1, 2], "dose": [3, 4]}).to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "flat").mkdir()
    for name in ("b", "a"):
        Image.new("RGB", (4, 4), (7, 0, 0)).save(tmp_path / "flat" / f"{name}.png")
    pictures = {"classes": "abc", "shape": [3, 4, 4], "mean": [0] * 3, "std": [1] * 3, "dtype": "uint8"}
    for name, schema, count in (("own.npz", ARRAYS, 3), ("own.csv", TABLE, 2), ("flat", pictures, 2)):
        site = SiteData(schema_of(schema), tmp_path)
        rows = site.rows(tmp_path / name, needs_labels=False)
        assert (len(rows.inputs), rows.labels) == (count, [])
        with pytest.raises(UserError):
            site.rows(tmp_path / name)
    assert rows.files == ("a.png", "b.png")
    images(tmp_path / "flat", {"c": 0})
    with pytest.raises(UserError, match="images beside folders"):
        site.rows(tmp_path / "flat", needs_labels=False)


def test_a_schema_is_measured_and_fits_its_own_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", inputs=np.array([[[0.0]], [[4.0]]]), targets=np.array([10, 2]))
    schema = measured(tmp_path / "own.npz", None)
    assert schema == schema_of(
        {"classes": ["2", "10"], "shape": [1, 1], "mean": [2.0], "std": [2.0], "dtype": "float64"}
    )
    assert read(tmp_path / "own.npz", schema.as_dict(), tmp_path)["targets"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"classes": ["a"]}, "expected two or more"),
        ({"dtype": "int8"}, "expected uint8, float32, float64"),
        ({"std": [0, 1]}, "expected numbers above 0"),
        ({"mean": [1]}, "expected one of each per channel or column"),
        ({"columns": ["x", "y"]}, "and a label column"),
        ({"colums": ["x"]}, "unknown field 'colums'"),
        ({"shape": ["x"]}, "cannot be read"),
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        schema_of(ARRAYS | changed)


def test_a_field_without_a_heading_shifts_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,kind\n1,2,a\n3,4,b\n")
    with pytest.raises(UserError, match="rows with more fields than its heading"):
        site_files.read(tmp_path / "t.csv", "kind")


def test_none_may_be_a_class_and_nothing_is_none(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,kind\n1,None\n3,NA\n")
    assert site_files.read(tmp_path / "t.csv", "kind").labels == ["None", "NA"]
    (tmp_path / "t.csv").write_text("age,kind\n1,\n3,a\n")
    with pytest.raises(UserError, match=r"column 'kind' of .* is empty in 1 rows"):
        site_files.read(tmp_path / "t.csv", "kind")


def test_a_table_without_rows_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,kind\n")
    with pytest.raises(UserError, match="a heading and no rows"):
        measured(tmp_path / "t.csv", "kind")
    with pytest.raises(UserError, match="there are no examples"):
        measured(arrays(tmp_path / "none.npz", []), None)


def test_a_schema_measures_small_columns_and_large_ones(tmp_path: Path) -> None:
    """In units of 1e-7, and in seconds since 1970, of which float32 keeps every second minute."""
    rng = np.random.default_rng(0)
    values = {"small": 1e-7 * rng.standard_normal(200), "seconds": 1.6e9 + 6 * rng.standard_normal(200)}
    labels = np.where(rng.random(200) < 0.5, "a", "b")
    pd.DataFrame(values | {"same": 3.1, "kind": labels}).to_csv(tmp_path / "t.csv", index=False)
    schema = measured(tmp_path / "t.csv", "kind")
    assert schema.dtype == "float64"
    data = local(schema.as_dict(), str(tmp_path))
    assert data.site is not None
    assert data.transform is not None
    seen = data.transform(data.site(tmp_path / "t.csv")["inputs"])
    assert seen.dtype == torch.float32
    torch.testing.assert_close(seen.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(seen.std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-4, rtol=0)
    assert measured(table(tmp_path / "plain.csv"), "kind").dtype == "float32"
