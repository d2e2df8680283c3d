"""Tables of images or texts with labels and writers, which become a data set's arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from baselines.errors import UserError

from .labels import list_classes

HOLD_OUT = 10  # without a test set, every tenth writer, or row, is kept for testing


class Table(NamedTuple):
    """Images [N, C, H, W] as uint8 or texts [N], labels [N], and names of writers [N], None without.

    Labels are names of classes or, with ``has_numbers``, numbers: the source's own, or positions in
    ``classes``.
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
    """Number the classes of related tables by :mod:`baselines.datasets.labels`, unless they have numbers.

    Raises
    ------
    UserError : for a single class, and for too many classes
    """
    labels = [label for table in tables for label in table.labels.tolist()]
    if all(table.has_numbers for table in tables):
        if len(set(labels)) == 1:
            raise UserError(f"{where} holds a single class, number {labels[0]}: expected two or more")
        return list(tables)
    classes = tuple(list_classes([*map(str, labels)], where))
    number = {name: k for k, name in enumerate(classes)}
    numbers = [
        np.array([number[str(label)] for label in table.labels.tolist()], np.int64) for table in tables
    ]
    return [
        table._replace(labels=some, has_numbers=True, classes=classes)
        for table, some in zip(tables, numbers, strict=True)
    ]


def hold_out(table: Table) -> tuple[Table, Table]:
    """Divide into train and test: every tenth writer, or a tenth of each label if writers are few.

    The rows of a label are drawn at random, but the same every time.

    Raises
    ------
    UserError : for too few rows
    """
    names, groups = np.unique([] if table.writers is None else table.writers, return_inverse=True)
    if len(names) < HOLD_OUT:
        drawn = np.random.default_rng(0).random(len(table.labels))
        groups = np.argsort(np.lexsort((drawn, table.labels)))  # each row's position, sorted by label
    test = groups % HOLD_OUT == HOLD_OUT - 1
    if not test.any():
        raise UserError(
            f"there are {len(table.labels)} rows and no test split: expected {HOLD_OUT} or more, a tenth "
            "of which is kept for testing; or name a split, dataset.test_split"
        )
    return table.select(~test), table.select(test)


def arrays_of(train: Table, test: Table) -> dict[str, np.ndarray]:
    """Return the arrays of a data set from tables with numbered labels.

    Raises
    ------
    UserError : if training and test images differ in shape
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
