"""text: labelled texts from your own table or the Hugging Face hub.

Unless one is given, the tokenizer is trained on all training texts. In a federation nobody has these: nodes
would have to agree on a tokenizer beforehand.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from baselines.errors import UserError
from clients import Classification
from strategies.shared.checks import require_count

from . import site_files
from .cache import load_cached
from .dataset import Dataset, parts
from .hub import load_splits, table_of
from .labels import RULE_VERSION, class_names
from .tables import Table, arrays_of, hold_out, number_labels
from .tokens import TextEncoder, read_tokenizer, train_tokenizer

READING_VERSION = 1  # raise it when the same texts give other tokens, so that prepared data are made anew


def text(
    name: str | None,
    column: str,
    label: str,
    writer: str | None,
    subset: str | None,
    train_split: str,
    test_split: str | None,
    length: int,
    vocabulary: int,
    tokenizer: str | None,
    cache: str,
) -> Dataset:
    """Return texts for classification, as tokens.

    Parameters
    ----------
    name : a table (.csv, .tsv, .parquet), a data set of the hub, or a folder of such
    column, label : columns; each cell of ``column`` is a text
    writer : column that tells natural partitions apart; None without one
    subset : of hub sets that have several
    train_split : of a hub set
    test_split : of a hub set, or beside a table another table; None keeps a tenth for testing, of writers
        where there are ten
    length : tokens of a text; longer ones are cut, shorter ones filled up with 0
    vocabulary : how many different tokens there may be
    tokenizer : a file ``tokenizer.json``, as a pretrained model has it; None learns one
    cache : the folder for the cache

    Raises
    ------
    UserError : for a table, split or column that is not there, empty cells, a tokenizer that does not fit
    """
    if name is None:
        raise UserError(
            "dataset=text needs a name: set dataset.name to a table or a data set of the Hugging Face hub, "
            "and dataset.text and dataset.label to its columns"
        )
    require_count("dataset.length", length)
    require_count("dataset.vocabulary", vocabulary)
    columns = {"text": column, "label": label, "writer": writer}
    own_tokenizer = None if tokenizer is None else read_tokenizer(tokenizer, vocabulary)
    files = [Path(one) for one in (name, test_split) if one is not None and Path(one).exists()]
    source = name, columns, subset, train_split, test_split
    settings = *source, length, vocabulary, own_tokenizer, RULE_VERSION, READING_VERSION

    def build() -> dict[str, np.ndarray]:
        tables = _read(name, subset, [train_split, test_split], columns)
        tables = number_labels(tables, f"column {label!r} of data set {name}")
        train, test = tables if len(tables) > 1 else hold_out(tables[0])
        tokens = own_tokenizer or train_tokenizer(train.inputs.tolist(), vocabulary)
        encoder = TextEncoder(tokens, length, column, label, train.classes)
        both = [one._replace(inputs=encoder(one.inputs.tolist()).numpy()) for one in (train, test)]
        return arrays_of(*both) | {"encoder": np.frombuffer(json.dumps(asdict(encoder)).encode(), np.uint8)}

    arrays = load_cached(Path(name).stem, settings, Path(cache), files, build)
    owners = arrays.pop("owners", None)
    encoder = TextEncoder.of(json.loads(arrays.pop("encoder").numpy().tobytes()))
    return Dataset(
        *parts(arrays),
        task=Classification(),
        owners=None if owners is None else owners.numpy(),
        num_classes=1 + max(int(arrays[f"{part}_targets"].max()) for part in ("train", "test")),
        encoder=encoder,
    )


def _read(
    name: str, subset: str | None, splits: list[str | None], columns: dict[str, str | None]
) -> list[Table]:
    """Return a table of texts for each split of a hub set, or for each file."""
    if site_files.is_table(Path(name)):
        places = [one for one in (name, splits[1]) if one is not None]
        rows = [_read_file(place) for place in places]
    else:
        rows = load_splits(name, subset, splits)
        places = [name] * len(rows)

    def texts(rows: Any) -> np.ndarray:
        return _texts(rows[columns["text"]][:], f"column {columns['text']!r} of data set {name}")

    return [table_of(one, place, columns, texts) for one, place in zip(rows, places, strict=True)]


def _read_file(path: str) -> Any:
    """Return the rows of a file with a table.

    Raises
    ------
    UserError : for a file that cannot be read
    """
    from datasets import Dataset as Rows

    try:
        return Rows.from_pandas(site_files.read_cells(Path(path)), preserve_index=False)
    except Exception as error:  # for a missing or damaged file: of the system, pandas, pyarrow
        raise UserError(
            f"{path} cannot be read ({error}): expected a .csv, .tsv or .parquet table"
        ) from error


def read_texts(path: Path, encoder: TextEncoder) -> site_files.SiteFile:
    """Return the tokens and labels of a table's texts; labels, or their column, may be missing.

    Raises
    ------
    UserError : for a file that cannot be read, or without the encoder's column
    """
    rows = _read_file(str(path))
    if encoder.column not in rows.column_names:
        raise UserError(f"{path} has no column {encoder.column!r}: it has {rows.column_names}")
    texts = _texts(rows[encoder.column][:], f"column {encoder.column!r} of {path}")
    tokens = encoder(texts.tolist()).numpy()
    if encoder.label not in rows.column_names:
        return site_files.SiteFile(tokens, [])
    where = f"column {encoder.label!r} of {path}"
    labels = class_names(rows[encoder.label][:], where, where, may_miss=True)
    return site_files.SiteFile(tokens, labels if any(labels) else [])


def _texts(cells: list[Any], where: str) -> np.ndarray:
    """Return a column's texts, [N] objects.

    Raises
    ------
    UserError : for cells that are empty or not a text
    """
    if other := [k for k, cell in enumerate(cells) if cell is not None and not isinstance(cell, str)]:
        kind = type(cells[other[0]]).__name__
        raise UserError(f"{where} holds a {kind} in row {other[0]}: expected texts")
    if count := sum(cell is None or not cell.strip() for cell in cells):
        raise UserError(f"{where} is empty in {count} rows: fill or remove them")
    return np.array(cells, dtype=object)
