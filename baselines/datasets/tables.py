"""Rows of images with labels and writers, on their way to a data set's arrays."""

from typing import NamedTuple

import numpy as np

from baselines.errors import UserError

HOLD_OUT = 10  # one writer, or row, in so many is kept for testing where there is no test set


class Table(NamedTuple):
    """Images [N, C, H, W] as uint8, labels [N] and writers [N] as they are called; None without writers."""

    inputs: np.ndarray
    labels: np.ndarray
    writers: np.ndarray | None

    def select(self, chosen: np.ndarray) -> "Table":
        """Return the rows where ``chosen`` [N] is True."""
        writers = None if self.writers is None else self.writers[chosen]
        return Table(self.inputs[chosen], self.labels[chosen], writers)


def hold_out(table: Table) -> tuple[Table, Table]:
    """Divide into train and test: every tenth writer is for testing, a tenth of each label without so many.

    Which rows of a label does not go by their order; it is the same every time.
    """
    names, groups = np.unique([] if table.writers is None else table.writers, return_inverse=True)
    if len(names) < HOLD_OUT:
        drawn = np.random.default_rng(0).random(len(table.labels))
        groups = np.argsort(np.lexsort((drawn, table.labels)))  # each row's place, label after label
    test = groups % HOLD_OUT == HOLD_OUT - 1
    return table.select(~test), table.select(test)


def arrays_of(train: Table, test: Table) -> dict[str, np.ndarray]:
    """Return the arrays of a data set; labels that are no numbers are numbered in their order.

    Raises
    ------
    UserError : where the images to train and to test on differ in shape
    """
    first, second = (list(table.inputs.shape[1:]) for table in (train, test))
    if first != second:
        raise UserError(
            f"there are images of {first} to train and of {second} to test on: expected one shape"
        )
    names = np.unique(np.concatenate([train.labels, test.labels]))
    arrays = {}
    for part, table in (("train", train), ("test", test)):
        labels = table.labels
        if not np.issubdtype(labels.dtype, np.integer):
            labels = np.searchsorted(names, labels)
        arrays[f"{part}_inputs"] = np.ascontiguousarray(table.inputs)
        arrays[f"{part}_targets"] = labels.astype(np.int64)
    if train.writers is not None:
        arrays["owners"] = np.unique(train.writers, return_inverse=True)[1].astype(np.int64)
    return arrays
