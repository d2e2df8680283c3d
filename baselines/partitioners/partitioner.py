"""What every partitioner is, and the one rule that splits a node's data into train and test."""

from abc import ABC, abstractmethod

import numpy as np


class Partitioner(ABC):
    """Distributes the rows of a training set over nodes.

    ``needs_labels`` is False where it goes by something else: data without a label for each row will do.
    """

    needs_labels = True

    @abstractmethod
    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Return one ascending array of row numbers per node, every row exactly once.

        Parameters
        ----------
        labels : [N], the class of each row
        owners : [N], the partition that each row belongs to by nature; None without one
        num_nodes : how many nodes share the rows
        seed : decides every random choice

        Raises
        ------
        UserError : when the rows cannot be distributed so
        """

    def test_rows(self, labels: np.ndarray) -> np.ndarray:
        """Return the rows of the data set's own test set that models are evaluated on: by default all.

        ``labels`` are the test set's.
        """
        return np.arange(len(labels))


def split_node(
    rows: np.ndarray, labels: np.ndarray, test_fraction: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Split one node's ``rows`` into train and test with the same label distribution.

    Every label gives its share to the test part, to within one example (systematic sampling along the
    rows ordered by label, at random within a label). One example at least is left to train on.
    ``labels`` are those of the whole training set.
    """
    shuffled = rng.permutation(rows)
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    steps = np.floor(np.arange(len(rows) + 1) * test_fraction + rng.random())
    test = np.diff(steps) > 0
    test[:1] &= not test.all()
    return np.sort(by_label[~test]), np.sort(by_label[test])
