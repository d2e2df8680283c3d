"""Data of the sites' own: what is read, what is refused, and that labels keep their numbers."""

import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

from baselines.datasets import site_files
from baselines.datasets.local import SiteData, local, measure_data, schema_of
from baselines.errors import DataError, UserError
from baselines.experiment import config
from baselines.experiment.overrides import inline_schema
from baselines.federation.agreed import reading_notes

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
    actual = read(arrays(tmp_path / "some.npz", ["c", "c", "b"]), ARRAYS, tmp_path)  # this site has no a
    assert actual["targets"].tolist() == [2, 2, 1]
    assert actual["inputs"].shape == (3, 2)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_is_read_in_the_schemas_order_of_columns(suffix: str, tmp_path: Path) -> None:
    actual = read(table(tmp_path / f"t.{suffix}"), TABLE, tmp_path)
    assert actual["targets"].tolist() == [2, 0]
    assert actual["inputs"].tolist() == [[40, 0.5], [50, 1.5]]
    assert actual["inputs"].dtype == torch.float32


def test_a_folder_of_images_has_a_folder_for_each_class(tmp_path: Path) -> None:
    folder = images(tmp_path / "own", {"b": 255, "c": 0})
    schema = {"classes": "abc", "shape": [3, 4, 4], "mean": [0] * 3, "std": [1] * 3, "dtype": "uint8"}
    actual = read(folder, schema, tmp_path / "cache")
    assert actual["targets"].tolist() == [1, 2]
    assert actual["inputs"][:, 0, 0, 0].tolist() == [255, 0]


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
        (whole, "columns"): "is not a table, and the schema has ('age', 'dose')",
        (csv, "all"): "is a table, and the schema has no columns",
        (table(tmp_path / "5.csv", age=["x", "y"]), "columns"): "expected numbers",
        (table(tmp_path / "6.csv", age=[None, 1.0]), "columns"): "is empty in 1 rows",
        (tmp_path / "nowhere", "all"): "there is no data at",
        (tmp_path / "text.txt", "all"): "is of an unknown kind",
        (images(tmp_path / "sizes", {"a": 0}, 2).parent / "sizes", "columns"): "is not a table",
    }
    (tmp_path / "text.txt").touch()
    for (path, kind), message in refused.items():
        with pytest.raises(UserError) as error:
            read(path, TABLE if kind == "columns" else ARRAYS, tmp_path)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_a_schema_needs_the_name_of_a_tables_column_of_labels(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name the column with the labels, --label"):
        measure_data(table(tmp_path / "whole.csv"), None)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    pd.DataFrame({"kind": ["a"], "age": [1]}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError, match="has no column 'dose': it has"):
        read(tmp_path / "t.csv", TABLE, tmp_path)


def test_data_are_prepared_once_and_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reads, read_file = arrays(tmp_path / "own.npz", ["a", "b"]), [], site_files.read
    monkeypatch.setattr(
        site_files, "read", lambda *arguments: reads.append(arguments) or read_file(*arguments)
    )
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
    schema = TABLE | {"units": ["years", "mg/dl, 'fasting'"]}
    file.write_text(OmegaConf.to_yaml(OmegaConf.create(schema)))
    sent = config.load(shlex.join(["dataset=local", inline_schema(f"dataset.schema={file}")]))
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
    schema = measure_data(tmp_path / "own.npz", None)
    assert schema == schema_of(
        {"classes": ["2", "10"], "shape": [1, 1], "mean": [2.0], "std": [2.0], "dtype": "float64"}
    )
    assert read(tmp_path / "own.npz", schema.as_dict(), tmp_path)["targets"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changed", "message"),
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
def test_a_schema_that_contradicts_itself_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
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
        measure_data(tmp_path / "t.csv", "kind")
    with pytest.raises(UserError, match="there are no examples"):
        measure_data(arrays(tmp_path / "none.npz", []), None)


def test_a_schema_measures_small_columns_and_large_ones(tmp_path: Path) -> None:
    """In units of 1e-7, and in seconds since 1970, of which float32 keeps every second minute."""
    rng = np.random.default_rng(0)
    values = {"small": 1e-7 * rng.standard_normal(200), "seconds": 1.6e9 + 6 * rng.standard_normal(200)}
    labels = np.where(rng.random(200) < 0.5, "a", "b")
    pd.DataFrame(values | {"same": 3.1, "kind": labels}).to_csv(tmp_path / "t.csv", index=False)
    schema = measure_data(tmp_path / "t.csv", "kind")
    assert schema.dtype == "float64"
    data = local(schema.as_dict(), str(tmp_path))
    assert data.site is not None
    assert data.transform is not None
    seen = data.transform(data.site(tmp_path / "t.csv")["inputs"])
    assert seen.dtype == torch.float32
    torch.testing.assert_close(seen.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(seen.std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-4, rtol=0)
    assert measure_data(table(tmp_path / "plain.csv"), "kind").dtype == "float32"


@pytest.mark.parametrize(
    "rule", ["baselines.datasets.site_files.READING_VERSION", "baselines.datasets.local.RULE_VERSION"]
)
def test_data_are_prepared_again_when_the_rule_of_reading_changes(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reads, read_file = arrays(tmp_path / "own.npz", ["a", "b"]), [], site_files.read
    monkeypatch.setattr(
        site_files, "read", lambda *arguments: reads.append(arguments) or read_file(*arguments)
    )
    read(path, ARRAYS, tmp_path)
    module, _, name = rule.rpartition(".")
    monkeypatch.setattr(sys.modules[module], name, 1_000_000)
    read(path, ARRAYS, tmp_path)
    assert len(reads) == 2


def test_a_schema_that_spells_its_classes_as_floats_fits_whole_numbers(tmp_path: Path) -> None:
    schema = ARRAYS | {"classes": ["1.0", "2.0"]}
    assert read(arrays(tmp_path / "a.npz", [2, 1]), schema, tmp_path)["targets"].tolist() == [1, 0]
    with pytest.raises(UserError, match=r"1 and 1\.0 are one"):
        schema_of(ARRAYS | {"classes": ["1.0", "1"]})


def test_files_of_a_folder_that_are_no_examples_are_counted(tmp_path: Path) -> None:
    folder = images(tmp_path / "own", {"b": 255, "a": 0})
    for name in (
        ".ipynb_checkpoints/0.png",
        "a/.0.png",
        "__MACOSX/a/0.png",
        "a/Thumbs.db",
        "n.txt",
        "0.png",
    ):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes((folder / "a" / "0.png").read_bytes())
    (folder / "a").rename(folder / "e\u0301")
    content = site_files.read(folder)
    assert content.labels == ["b", "é"]
    assert content.left_out == {
        "hidden": 2,
        "in no folder of a class": 1,
        "no picture": 1,
        "of an operating system": 2,
    }
    assert content.tidied == {"names of classes": 1}
    assert [line.partition(":")[0] for line in reading_notes(content)] == ["left out", "tidied"]
    assert reading_notes(content)[0].startswith("left out: 6 of 8 files (75.0%): 2 hidden, 1 in no")


def test_what_a_table_of_people_has_is_refused_by_name(tmp_path: Path) -> None:
    refused = {
        ",a,y\n0,0.6,x\n1,0.2,z\n": "a column without a name, 'Unnamed: 0'",
        "Unnamed: 0,a,y\n0,0.6,x\n1,0.2,z\n": "a column without a name, 'Unnamed: 0'",
        "a,y,\n0,x,\n1,z,\n": "a column without a name, 'Unnamed: 2'",
        "a, a,y\n1,2,x\n3,4,z\n": "2 columns 'a'",
        "y\nx\nz\n": "no column beside the label",
        "a,y\n1,x\n2,z\nabout 3,x\n": "column 'a' of .* holds 'about 3' in row 3, no number in 1 rows",
        "27.3,1,2\n30.7,2,1\n": "no heading",
        "27.3,1,x\n30.7,2,z\n": "no column 'y'.*is its heading missing",
        "a;y\n1;x\n2;z\n": "its fields seem to be separated by ';'",
        "a,y\n1,3.1\n" + "".join(f"{k},{k / 7}\n" for k in range(60)): "or numbers to predict",
    }
    for number, (text, line) in enumerate(refused.items()):
        (tmp_path / f"{number}.csv").write_text(text)
        with pytest.raises(DataError, match=line) as error:
            measure_data(tmp_path / f"{number}.csv", "y")
        assert not {"27.3", "30.7", "about", "/"} & set(error.value.public.split())


def test_what_the_schema_does_not_name_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",age,dose,note,note,kind\n0,1,2,x,,a\n1,3,4,,y,b \n")
    content = site_files.read(tmp_path / "t.csv", "kind", ["dose", "age"])
    assert content.inputs.tolist() == [[2, 1], [4, 3]]
    assert content.labels == ["a", "b"]
    assert content.tidied == {"labels": 1}
    (tmp_path / "0.csv").write_text("0,1,2\n7,8,x\n5,6,y\n")  # numbers from 0 on are a heading
    assert site_files.read(tmp_path / "0.csv", "2").columns == ("0", "1")


def test_tables_are_known_by_their_end_in_any_case(tmp_path: Path) -> None:
    frame = pd.DataFrame(ROWS)
    for name in ("t.csv", "t.CSV", "t.csv.gz", "T.TSV", "t.tsv.gz", "t.Parquet"):
        if "arquet" in name:
            frame.to_parquet(tmp_path / name)
        else:
            separator = "\t" if "tsv" in name.lower() else ","
            packed = "gzip" if name.endswith("gz") else None
            frame.to_csv(tmp_path / name, index=False, sep=separator, compression=packed)
        assert read(tmp_path / name, TABLE, tmp_path)["inputs"].tolist() == [[40, 0.5], [50, 1.5]], name


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("int64", "float32"),
        ("uint16", "float32"),
        ("float16", "float32"),
        ("bool", "float32"),
        (">f8", "float32"),
    ],
)
def test_numbers_of_any_kind_are_measured_and_read_as_a_tables(
    kind: str, dtype: str, tmp_path: Path
) -> None:
    inputs = np.array([[0, 1], [1, 0], [1, 1]]).astype(kind)
    np.savez(tmp_path / "a.npz", inputs=inputs, targets=np.array(["a", "b", "a"]))
    schema = measure_data(tmp_path / "a.npz", None)
    assert schema.dtype == dtype
    rows = read(tmp_path / "a.npz", schema.as_dict(), tmp_path)["inputs"]
    assert rows.dtype == torch.float32
    assert rows.tolist() == [[0, 1], [1, 0], [1, 1]]
    of_bytes = schema.as_dict() | {"dtype": "uint8"}
    assert read(tmp_path / "a.npz", of_bytes, tmp_path)["inputs"].dtype == torch.uint8
    np.savez(tmp_path / "a.npz", inputs=inputs.astype("int64") * 300, targets=np.array(["a", "b", "a"]))
    with pytest.raises(DataError, match="cannot hold in 3 rows"):
        read(tmp_path / "a.npz", of_bytes, tmp_path)


@pytest.mark.parametrize(
    ("shape", "kind", "is_read"),
    [
        ((32, 32, 3), "uint8", False),
        ((28, 28, 1), "float32", False),
        ((48, 64, 3), "float32", False),
        ((28, 28), "uint8", False),
        ((28, 28), "float32", False),  # where a schema is measured; one by hand may say so
        ((3, 32, 32), "uint8", True),
        ((1, 28, 28), "float32", True),
        ((9, 128, 1), "float32", True),  # nine sensors
        ((9, 128), "float32", True),
        ((3, 5, 3), "float32", True),
    ],
)
def test_rows_are_never_taken_for_channels(
    shape: tuple[int, ...], kind: str, is_read: bool, tmp_path: Path
) -> None:
    path = arrays(tmp_path / "a.npz", ["a", "b"], shape, kind)
    if is_read:
        assert measure_data(path, None).shape == shape
    else:
        with pytest.raises(DataError, match=r"expected \[n, channels, height, width\]"):
            measure_data(path, None)


def test_numbers_too_large_to_measure_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.array([[1e200], [-1e200]]), targets=np.array([0, 1]))
    with pytest.raises(DataError, match="too large"):
        measure_data(tmp_path / "a.npz", None)


def test_a_schema_does_not_hold_the_label_among_its_columns() -> None:
    for columns in (["age", "kind"], ["age", "age"]):
        with pytest.raises(UserError, match="hold the label 'kind', or one twice"):
            schema_of(TABLE | {"columns": columns})
