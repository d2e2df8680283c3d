"""Data as people have them: a small sound set of each reader, damaged in one of the listed ways.

A damage either must be refused, in one line that holds ``word``, or must do no harm. What may leave a site
of a refusal (``public``) has no value, no path and no column that the schema does not name.
"""

import gzip
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

from baselines.datasets import Dataset, tables
from baselines.datasets.hub import _pictures, table_of
from baselines.datasets.local import Schema, SiteData
from baselines.errors import DataError, UserError
from baselines.experiment.data import check_rows
from baselines.experiment.overrides import read_schema_file
from baselines.federation.agreed import write_schema
from clients import Classification
from helpers.fuzz.verdict import Result

ROWS = 24
CLASSES = ("sane", "ill")
TABLE = Schema(CLASSES, (2,), (0.0, 0.0), (1.0, 1.0), "float32", ("age", "dose"), "kind")
VECTORS = Schema(CLASSES, (4,), (0.0,) * 4, (1.0,) * 4, "float32")
PICTURES = Schema(CLASSES, (3, 8, 8), (0.5,) * 3, (0.2,) * 3, "uint8")
PUBLIC = re.compile(r"(data|schema): [a-zA-Z0-9 ,\[\].'\"-]+")  # no path, no bracket of Python's
QUOTED = re.compile(r"'([^']*)'")
NAMES = {*TABLE.columns, TABLE.label}  # type: ignore[misc]


class Damage(NamedTuple):
    """What is done to a sound set, and a word of the refusal: "" where it must be read, None for either."""

    do: Callable[[Any], Any]
    word: str | None


def frame() -> pd.DataFrame:
    """Return a sound table, with a column that the schema does not name."""
    draws = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": draws.normal(57, 9, ROWS).round(3),
            "surname": [f"Secret{k}" for k in range(ROWS)],
            "dose": draws.normal(3, 1, ROWS).round(3),
            "kind": [CLASSES[k % 2] for k in range(ROWS)],
        }
    )


def _cell(column: str, value: Any, row: int = 3) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def put(table: pd.DataFrame) -> pd.DataFrame:
        table[column] = table[column].astype(object)
        table.loc[row, column] = value
        return table

    return put


def _changed(**columns: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda table: table.assign(**columns)


def _renamed(**names: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda table: table.rename(columns=names)


ANY_TABLE: dict[str, Damage] = {
    "nothing": Damage(lambda table: table, ""),
    "no rows": Damage(lambda table: table[:0], "no rows"),
    "no label in a row": Damage(_cell("kind", None), "'kind' of"),
    "a blank label": Damage(_cell("kind", "  "), "is empty in 1 rows"),
    "blanks around a label": Damage(_cell("kind", " sane "), ""),
    "an unknown label": Damage(_cell("kind", "SecretLabel"), "not in the schema"),
    "labels of one class": Damage(_changed(kind="ill"), ""),  # of a site; the schema has more
    "an empty cell": Damage(_cell("age", None), "is empty in 1 rows"),
    "an infinite cell": Damage(_changed(age=np.inf), "infinite in 24 rows"),
    "text for numbers": Damage(_changed(age="SecretAge"), "expected numbers"),
    "too large for float32": Damage(_changed(age=1e300), "float32"),
    "a missing column": Damage(_renamed(dose="SecretDose"), "no column 'dose'"),
    "a missing label": Damage(_renamed(kind="SecretKind"), "no column 'kind'"),
    "blanks around a name": Damage(_renamed(age=" age "), ""),
    "whole numbers": Damage(_changed(age=3), ""),
    "truth values": Damage(_changed(age=True), ""),
    "a foreign empty column": Damage(_changed(surname=None), ""),
}
TEXT: dict[str, Damage] = {
    "a column twice": Damage(_renamed(surname="age"), "2 columns 'age'"),
    "a foreign column twice": Damage(lambda table: pd.concat([table, table[["surname"]]], axis=1), ""),
    "a decimal comma": Damage(_cell("age", "57,25"), "expected numbers"),
}


def _without_heading(text: bytes) -> bytes:
    heading, _, rows = text.partition(b"\n")
    return (b"\t" if b"\t" in heading else b",").join([b"1.5", b"2.5", b"3.5", b"27.31"]) + b"\n" + rows


BYTES: dict[str, Damage] = {  # of a text
    "no heading": Damage(_without_heading, "no heading"),
    "another separator": Damage(lambda text: text.replace(b",", b";").replace(b"\t", b";"), "separated"),
    "a longer row": Damage(lambda text: text + b"1,2,3,sane,5,6\n1\t2\t3\tsane\t5\t6\n", None),
    "a shorter row": Damage(lambda text: text + b"1\n", "is empty"),
    "a mark at its begin": Damage(lambda text: b"\xef\xbb\xbf" + text, ""),
    "another encoding": Damage(lambda text: text.replace(b"Secret3", b"M\xfcller"), "cannot be read"),
    "an empty file": Damage(lambda text: b"", "cannot be read"),
}


def arrays() -> dict[str, Any]:
    """Return sound arrays."""
    draws = np.random.default_rng(0)
    inputs = draws.normal(27.31, 1, (ROWS, 4)).astype("float32")
    return {"inputs": inputs, "targets": np.array([CLASSES[k % 2] for k in range(ROWS)])}


def _array(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda content: content | {name: change(content[name])}


def _with(value: Any, dtype: Any = None) -> Callable[[np.ndarray], np.ndarray]:
    def put(array: np.ndarray) -> np.ndarray:
        array = array.astype(array.dtype if dtype is None else dtype)
        array[3] = value
        return array

    return put


def _numbers(*values: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.array([values[k % len(values)] for k in range(ROWS)])


NPZ: dict[str, Damage] = {
    "nothing": Damage(lambda content: content, ""),
    "nan": Damage(_array("inputs", _with(np.nan)), "infinite values in 1 rows"),
    "inf": Damage(_array("inputs", _with(np.inf)), "infinite values in 1 rows"),
    "text": Damage(_array("inputs", lambda x: x.astype(str)), "expected numbers"),
    "complex numbers": Damage(_array("inputs", lambda x: x + 1j), "expected numbers"),
    "objects": Damage(_array("inputs", lambda x: x.astype(object)), "Python objects"),
    "whole numbers": Damage(_array("inputs", lambda x: x.astype(int)), ""),
    "half precision": Damage(_array("inputs", lambda x: x.astype("float16")), ""),
    "truth values": Damage(_array("inputs", lambda x: x > 27), ""),
    "another machine's": Damage(_array("inputs", lambda x: x.astype(">f4")), ""),
    "another dtype": Damage(_array("inputs", lambda x: x.astype(float)), "float64"),
    "another shape": Damage(_array("inputs", lambda x: x[:, :3]), "shape [3]"),
    "channels last": Damage(_array("inputs", lambda x: np.zeros((ROWS, 8, 8, 3), "f4")), "channels"),
    "no channels": Damage(_array("inputs", lambda x: np.zeros((ROWS, 8, 8), "u1")), "channels"),
    "fewer inputs": Damage(_array("inputs", lambda x: x[1:]), "expected [n, ...] and [n]"),
    "a single number": Damage(_array("targets", lambda y: np.array(1)), "expected [n, ...] and [n]"),
    "no rows": Damage(lambda content: {name: array[:0] for name, array in content.items()}, "no examples"),
    "no targets": Damage(lambda content: {"inputs": content["inputs"]}, "no array 'targets'"),
    "targets of nan": Damage(_array("targets", _numbers(0.0, np.nan)), "is empty in 12 rows"),
    "targets of bytes": Damage(_array("targets", lambda y: y.astype(bytes)), ""),
    "targets of other bytes": Damage(_array("targets", _numbers(b"\xff", b"ill")), "no UTF-8 in 12 rows"),
    "targets of objects": Damage(_array("targets", _with(None, object)), "Python objects"),
    "empty targets": Damage(_array("targets", _with("")), "is empty in 1 rows"),
    "unknown targets": Damage(_array("targets", _numbers(27.31, 0)), "not in the schema"),
}


# A schema is drafted of any data: what does not fit another site's is no fault of them.


def _drafted(damages: Mapping[str, Damage], *agreed: str) -> dict[str, Damage]:
    """Return the damages with either outcome where they are against what sites have ``agreed`` on."""
    return {kind: Damage(do, None if kind in agreed else word) for kind, (do, word) in damages.items()}


def _kinds(*labels: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return _changed(kind=[labels[k % len(labels)] for k in range(ROWS)])


TABLE_OF_SCHEMA: dict[str, Damage] = {  # without a column of text
    "nothing": Damage(lambda table: table, ""),
    "row numbers": Damage(lambda table: table.reset_index(names=""), "has a column without a name"),
    "a name of blanks": Damage(_renamed(age="  "), "has a column without a name"),
    "nothing but the label": Damage(lambda table: table[["kind"]], "no column beside the label"),
    "a column twice": Damage(_renamed(dose="age"), "2 columns 'age'"),
    "one class": Damage(_kinds("ill"), "single class"),
    "no label in a row": Damage(_cell("kind", None), "is empty in 1 rows"),
    "blanks around labels": Damage(_kinds("ill", "sane", " ill", "sane "), ""),
    "decomposed labels": Damage(_kinds("malade", "santé", "sante\u0301"), ""),
    "an empty cell": Damage(_cell("age", None), "is empty in 1 rows"),
    "a text among numbers": Damage(_cell("age", "SecretAge"), "holds 'SecretAge' in row 4"),
    "a column of text": Damage(_changed(surname="Secret"), "expected numbers"),
    "an infinite cell": Damage(_cell("dose", np.inf), "infinite in 1 rows"),
    "no rows": Damage(lambda table: table[:0], "no rows"),
}


def folder(path: Path) -> None:
    """Write a sound folder of pictures."""
    draws = np.random.default_rng(0)
    for k in range(ROWS):
        place = path / CLASSES[k % 2] / f"Secret{k}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(place)


def _copied(name: str) -> Callable[[Path], None]:
    """Copy a picture to another place below the folder."""

    def copy(path: Path) -> None:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes((path / "ill" / "Secret1.png").read_bytes())

    return copy


def _saved(picture: Image.Image) -> Callable[[Path], None]:
    return lambda path: picture.save(path / "ill" / "Secret1.png")


def _cut(path: Path) -> None:
    name = path / "ill" / "Secret1.png"
    name.write_bytes(name.read_bytes()[:60])


def _moved(path: Path) -> None:
    for name in CLASSES:
        (path / "train").mkdir(exist_ok=True)
        (path / name).rename(path / "train" / name)


FOLDER: dict[str, Damage] = {
    "nothing": Damage(lambda path: None, ""),
    "a hidden class": Damage(_copied(".ipynb_checkpoints/0.png"), ""),
    "a hidden folder in a class": Damage(_copied("ill/.ipynb_checkpoints/0.png"), ""),
    "a hidden file": Damage(_copied("ill/._0.png"), ""),
    "a Mac's archive": Damage(_copied("__MACOSX/ill/0.png"), ""),
    "Windows' thumbnails": Damage(_copied("ill/Thumbs.db"), ""),
    "a file that is none": Damage(_copied("ill/notes.txt"), ""),
    "a picture without class": Damage(_copied("0.png"), ""),
    "an empty class": Damage(lambda path: (path / "healthy").mkdir(), ""),
    "an unknown class": Damage(_copied("SecretClass/0.png"), "not in the schema"),
    "train and test": Damage(_moved, "path=.../train test_path=.../test"),
    "deeper pictures": Damage(_copied("ill/2024/0.png"), "deeper than CLASS/"),
    "a torn picture": Damage(_cut, "ill/Secret1.png"),
    "no picture": Damage(lambda path: (path / "ill" / "Secret1.png").write_text("text"), "ill/Secret1.png"),
    "another size": Damage(_saved(Image.new("RGB", (9, 8))), "2 different shapes"),
    "another number of channels": Damage(_saved(Image.new("L", (8, 8))), "2 different shapes"),
    "16 bits": Damage(_saved(Image.fromarray(np.full((8, 8), 40_000, np.uint16))), "more than 8 bits"),
}


def columns() -> dict[str, Any]:
    """Return the columns of a sound set of the hub."""
    content = arrays()
    picture = {"bytes": _png(), "path": None}
    return {
        "image": [picture] * ROWS,
        "label": content["targets"].tolist(),
        "who": ["w1", "w2"] * (ROWS // 2),
    }


def _png() -> bytes:
    from io import BytesIO

    stream = BytesIO()
    Image.new("RGB", (8, 8), (9, 8, 7)).save(stream, "PNG")
    return stream.getvalue()


def _column(name: str, *values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda content: content | {name: [values[k % len(values)] for k in range(len(content[name]))]}


HUB: dict[str, Damage] = {
    "nothing": Damage(lambda content: content, ""),
    "no label": Damage(_column("label", 0, 1, None), "'label' of data set hub is empty in 8 rows"),
    "nan for a label": Damage(_column("label", 0.0, 1.0, np.nan), "'label' of data set hub is empty in 8"),
    "lists of labels": Damage(_column("label", [0], [1, 2]), "several values in 24 rows"),
    "one class": Damage(_column("label", 0), "single class"),
    "ids for labels": Damage(_column("label", *(10**10 + k for k in range(ROWS))), "are these ids"),
    "labels with gaps": Damage(_column("label", 1, 2, 5), ""),
    "no picture": Damage(_column("image", None, {"bytes": _png(), "path": None}), "empty in 12 rows"),
    "a torn picture": Damage(_column("image", {"bytes": _png()[:45], "path": None}), "cannot be read"),
    "text for pictures": Damage(_column("image", "SecretText"), "holds a str"),
    "plain bytes": Damage(_column("image", _png()), ""),
    "a blank label": Damage(_column("label", "a", "b", " "), "'label' of data set hub is empty in 8 rows"),
    "blanks around a label": Damage(_column("label", "a", "b", "a "), ""),
    "bytes for labels": Damage(_column("label", b"a", b"b"), ""),
    "truth values for labels": Damage(_column("label", True, False), ""),
    "no writer": Damage(_column("who", "w1", None), "'who' of data set hub is empty in 12 rows"),
    "few rows": Damage(lambda content: {name: some[:3] for name, some in content.items()}, "10 or more"),
    "no rows": Damage(lambda content: {name: some[:0] for name, some in content.items()}, "without rows"),
}


def own() -> dict[str, Any]:
    """Return the tensors of a sound data set of one's own, as arrays."""
    inputs = np.random.default_rng(0).normal(0, 1, (ROWS, 4)).astype("float32")
    targets = np.arange(ROWS) % 2
    sound = {"inputs": inputs, "targets": targets}
    return {f"{part}_{name}": array for part in ("train", "test") for name, array in sound.items()}


OWN: dict[str, Damage] = {
    "arrays": Damage(lambda content: content, ""),
    "small whole numbers": Damage(_array("train_targets", lambda y: y.astype("int32")), ""),
    "nan to train on": Damage(_array("train_inputs", _with(np.nan)), "train_inputs have NaN"),
    "inf to test on": Damage(_array("test_inputs", _with(np.inf)), "test_inputs have NaN"),
    "targets of nan": Damage(_array("test_targets", _with(np.nan, float)), "test_targets have NaN"),
    "text": Damage(_array("train_targets", lambda y: y.astype(str)), "train_targets are an array of <U"),
    "a list": Damage(_array("train_inputs", list), "train_inputs are a list"),
    "a dict": Damage(_array("test_inputs", lambda x: {"a": x, "b": x}), "its test_inputs a dict"),
    "a single value": Damage(_array("test_targets", lambda y: np.array(1)), "are a single value"),
    "nothing to train on": Damage(
        lambda content: content | {name: content[name][:0] for name in ("train_inputs", "train_targets")},
        "no training examples",
    ),
    "an empty test part": Damage(
        lambda content: content | {name: content[name][:0] for name in ("test_inputs", "test_targets")},
        "no test examples",
    ),
    "one class": Damage(
        lambda c: c | {f"{p}_targets": 0 * c[f"{p}_targets"] for p in ("train", "test")}, "all 0"
    ),
}


# Readers: each writes its sound set, damaged, and reads it; what they return is targets


def _site(path: Path, schema: Schema) -> np.ndarray:
    rows = SiteData(schema, path.parent).read(path)
    assert np.isfinite(rows["inputs"]).all()
    assert str(rows["inputs"].dtype) == schema.dtype
    assert len(rows["inputs"]) == len(rows["targets"])
    return rows["targets"]


def _read_text(suffix: str) -> Callable[[Path, Damage], np.ndarray]:
    def read(place: Path, damage: Damage) -> np.ndarray:
        path = place / f"SecretFile{suffix}"
        in_bytes = damage in BYTES.values()
        table = frame() if in_bytes else damage.do(frame())
        text = table.to_csv(index=False, sep="\t" if ".tsv" in suffix else ",").encode()
        if in_bytes:
            text = damage.do(text)
        path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
        return _site(path, TABLE)

    return read


def _read_parquet(place: Path, damage: Damage) -> np.ndarray:
    damage.do(frame()).to_parquet(place / "SecretFile.parquet")
    return _site(place / "SecretFile.parquet", TABLE)


def _read_npz(place: Path, damage: Damage) -> np.ndarray:
    np.savez(place / "SecretFile.npz", allow_pickle=True, **damage.do(arrays()))
    return _site(place / "SecretFile.npz", VECTORS)


def _read_folder(place: Path, damage: Damage) -> np.ndarray:
    folder(place / "SecretFolder")
    damage.do(place / "SecretFolder")
    return _site(place / "SecretFolder", PICTURES)


def _drafted_of(name: str, label: str | None, write: Callable[[Path, Damage], object]) -> Any:
    """Return what writes a set, drafts its schema, and reads the set by that."""

    def read(place: Path, damage: Damage) -> np.ndarray:
        write(place / name, damage)
        write_schema(place / name, label, None, place / "schema.yaml")
        schema = read_schema_file(place / "schema.yaml")
        rows = _site(place / name, schema)
        assert len(rows) == ROWS or damage.word is None, f"{len(rows)} rows"
        assert len(schema.classes) == len(CLASSES) or damage.word is None, schema.classes
        return rows

    return read


def _write_table(path: Path, damage: Damage) -> None:
    damage.do(frame().drop(columns="surname")).to_csv(path, index=False)


def _write_npz(path: Path, damage: Damage) -> None:
    np.savez(path, allow_pickle=True, **damage.do(arrays()))


def _write_folder(path: Path, damage: Damage) -> None:
    folder(path)
    damage.do(path)


def _read_hub(place: Path, damage: Damage) -> np.ndarray:
    from datasets import Dataset as Rows

    rows = Rows.from_dict(damage.do(columns()))
    columns_of = {"image": "image", "label": "label", "writer": "who"}
    table = table_of(rows, "hub", columns_of, lambda rows: _pictures(rows, "image", "hub", None))
    (table,) = tables.number_labels([table], "column 'label' of data set hub")
    train, test = tables.hold_out(table)
    return tables.arrays_of(train, test)["train_targets"]


def _read_own(place: Path, damage: Damage) -> np.ndarray:
    dataset = Dataset(**damage.do(own()), task=Classification())
    check_rows(dataset, is_tested=True)
    return dataset.train_targets.numpy()


class Reader(NamedTuple):
    """How a set is read, and what may be wrong with it."""

    read: Callable[[Path, Damage], np.ndarray]
    damages: Mapping[str, Damage]
    is_site: bool = True


READERS: dict[str, Reader] = {
    ".csv": Reader(_read_text(".csv"), ANY_TABLE | TEXT | BYTES),
    ".CSV.gz": Reader(_read_text(".CSV.gz"), ANY_TABLE | TEXT | BYTES),
    ".tsv": Reader(_read_text(".tsv"), ANY_TABLE | TEXT | BYTES),
    ".parquet": Reader(_read_parquet, ANY_TABLE),
    ".npz": Reader(_read_npz, NPZ),
    "folder": Reader(_read_folder, FOLDER),
    "schema of .csv": Reader(_drafted_of("data.csv", "kind", _write_table), TABLE_OF_SCHEMA, is_site=False),
    "schema of .npz": Reader(
        _drafted_of("data.npz", None, _write_npz),
        _drafted(NPZ, "another dtype", "another shape", "unknown targets"),
        is_site=False,
    ),
    "schema of a folder": Reader(
        _drafted_of("data", None, _write_folder), _drafted(FOLDER, "an unknown class"), is_site=False
    ),
    "hub": Reader(_read_hub, HUB, is_site=False),
    "own": Reader(_read_own, OWN, is_site=False),
}


def fault_of(reader: Reader, damage: Damage, place: Path) -> str:
    """Read a damaged set; return what is not as promised, empty where all is."""
    try:
        targets = reader.read(place, damage)
    except UserError as error:
        return _misworded(error, reader, damage)
    except Exception as error:  # what a person would see as a traceback
        return f"{type(error).__name__}: {error}"
    if damage.word:
        return f"accepted: expected a refusal with {damage.word!r}"
    if damage.word == "" and reader.is_site and len(targets) != ROWS:
        return f"{len(targets)} rows: expected {ROWS}"
    return "" if set(targets.tolist()) <= {0, 1, 2} else f"other targets: {set(targets.tolist())}"


def _misworded(error: UserError, reader: Reader, damage: Damage) -> str:
    line = str(error)
    if damage.word == "":
        return f"refused: {line}"
    if damage.word is not None and damage.word not in line:
        return f"without {damage.word!r}: {line}"
    if not reader.is_site:
        return ""
    if not isinstance(error, DataError):
        return f"nothing that may leave the site: {line}"
    return leak_of(error.public)


def leak_of(public: str) -> str:
    """Return why a line may not leave a site; empty where it may."""
    foreign = [name for name in QUOTED.findall(public) if name not in NAMES]
    values = [value for value in ("Secret", "27.31", *CLASSES, "/", "Error", "57,25") if value in public]
    if foreign or values or not PUBLIC.fullmatch(public):
        return f"leaves the site: {public!r}"
    return ""


def try_one(random: Random, folder: Path, repeat: str) -> Result:
    """Damage a set in a listed way, or the bytes of its file anywhere; read it, judge what came of it."""
    name = random.choice([*READERS])
    reader = READERS[name]
    kind = random.choice([*reader.damages])
    damage = reader.damages[kind]
    fault = fault_of(reader, damage, folder)
    if reader.is_site and not fault and (files := [path for path in folder.rglob("*") if path.is_file()]):
        path = random.choice(sorted(files))
        content = bytearray(path.read_bytes())
        for _ in range(random.randrange(4)):
            if content:
                content[random.randrange(len(content))] = random.randrange(256)
        path.write_bytes(content[: random.choice((len(content), random.randrange(len(content) + 1)))])
        fault = _again(name, folder)
    ends = {"": "read", None: "read, or refused in one line"}
    outcome = f"{name}: {ends.get(damage.word, 'refused in one line')}"
    return Result(outcome, f"{name}, {kind}: {fault}" if fault else "", repeat)


def _again(name: str, place: Path) -> str:
    """Read what lies there now, whatever it is."""
    path = next(one for one in place.iterdir() if one.name.startswith("Secret"))
    schema = PICTURES if path.is_dir() else VECTORS if path.suffix == ".npz" else TABLE
    anything = Damage(lambda content: content, None)
    return fault_of(Reader(lambda *_: _site(path, schema), {}), anything, place)
