"""Rows of images or texts with labels and writers, on their way to a data set's arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from baselines.errors import UserError

from .labels import classes_of

HOLD_OUT = 10  # one writer, or row, in so many is kept for testing where there is no test set


class Table(NamedTuple):
    """Images [N, C, H, W] as uint8 or texts [N], labels [N], and writers [N] as they are called, None without.

    Labels are names of classes, or numbers where ``has_numbers``: the source has numbered its classes, or
    they are the places of ``classes``.
    """

    inputs: np.ndarray
    labels: np.ndarray
    writers: np.ndarray | None
    has_numbers: bool = False
    classes: tuple[str, ...] | None = None

    def select(self, chosen: np.ndarray) -> "Table":
        """Return the rows where ``chosen`` [N] is True."""
        writers = None if self.writers is None else self.writers[chosen]
        return self._replace(inputs=self.inputs[chosen], labels=self.labels[chosen], writers=writers)


def number_labels(tables: Sequence[Table], where: str) -> list[Table]:
    """Number the classes of tables that go together by :mod:`baselines.datasets.labels`, unless they are.

    Raises
    ------
    DataError : for a single class, and for labels that are none
    """
    labels = [label for table in tables for label in table.labels.tolist()]
    if all(table.has_numbers for table in tables):
        if len(set(labels)) == 1:
            raise UserError(f"{where} holds a single class, number {labels[0]}: expected two or more")
        return list(tables)
    classes = tuple(classes_of([*map(str, labels)], where))
    number = {name: k for k, name in enumerate(classes)}
    numbers = [
        np.array([number[str(label)] for label in table.labels.tolist()], np.int64) for table in tables
    ]
    return [
        table._replace(labels=some, has_numbers=True, classes=classes)
        for table, some in zip(tables, numbers, strict=True)
    ]


def hold_out(table: Table) -> tuple[Table, Table]:
    """Divide into train and test: every tenth writer, or a tenth of each label where writers are few.

    Which rows of a label does not go by their order; it is the same every time.

    Raises
    ------
    UserError : for too few rows
    """
    names, groups = np.unique([] if table.writers is None else table.writers, return_inverse=True)
    if len(names) < HOLD_OUT:
        drawn = np.random.default_rng(0).random(len(table.labels))
        groups = np.argsort(np.lexsort((drawn, table.labels)))  # each row's place, label after label
    test = groups % HOLD_OUT == HOLD_OUT - 1
    if not test.any():
        raise UserError(
            f"there are {len(table.labels)} rows and no test split: expected {HOLD_OUT} or more, a tenth "
            "of which is kept for testing; or name a split, dataset.test_split"
        )
    return table.select(~test), table.select(test)


def arrays_of(train: Table, test: Table) -> dict[str, np.ndarray]:
    """Return the arrays of a data set of which the labels are numbers.

    Raises
    ------
    UserError : where the images to train and to test on differ in shape
    """
    first, second = (list(table.inputs.shape[1:]) for table in (train, test))
    if first != second:
        raise UserError(
            f"there are images of {first} to train and of {second} to test on: expected one shape"
        )
    arrays = {}
    for part, table in (("train", train), ("test", test)):
        arrays[f"{part}_inputs"] = np.ascontiguousarray(table.inputs)
        arrays[f"{part}_targets"] = table.labels.astype(np.int64)
    if train.writers is not None:
        arrays["owners"] = np.unique(train.writers, return_inverse=True)[1].astype(np.int64)
    return arrays
