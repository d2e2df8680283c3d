"""The interface of partitioners, its checks, and the split of a node's data into training and test."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np

from baselines.errors import UserError
from strategies.shared.flower_names import HasHooks


class Partitioner(HasHooks, ABC):
    """Distribute the rows of a training set over nodes.

    ``needs_labels`` is False if it ignores labels, and so takes data without them.
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
        owners : [N], each row's natural partition; None without one
        num_nodes : how many nodes share the rows
        seed : decides every random choice

        Raises
        ------
        UserError : when the rows cannot be distributed in this way
        """

    def test_rows(self, labels: np.ndarray) -> np.ndarray:
        """Return the rows of the data set's test set on which models are evaluated: by default all.

        ``labels`` are the test set's.
        """
        return np.arange(len(labels))

    def own_test_rows(self, labels: np.ndarray, partition_id: int) -> np.ndarray:
        """Return the rows on which a node's own model is evaluated: by default :meth:`test_rows`."""
        return self.test_rows(labels)


def checked(parts: object, num_nodes: int, num_rows: int, name: str) -> list[np.ndarray]:
    """Return the result of the partitioner ``name``, if it is valid.

    Nodes may share rows, and some rows may be left out; no node has a row twice.

    Raises
    ------
    UserError : in one line that names the first node with invalid rows
    """
    parts_as_arrays = [np.asarray(part) for part in parts] if isinstance(parts, Iterable) else []
    blame = f"partitioner {name} gave"
    if len(parts_as_arrays) != num_nodes:
        raise UserError(
            f"{blame} {len(parts_as_arrays)} arrays of rows: expected one for each of num_nodes={num_nodes}"
        )
    for k, rows in enumerate(parts_as_arrays):
        if fault := _fault(rows, num_rows):
            raise UserError(f"{blame} node {k} {fault}")
    return [rows.astype(np.int64, copy=False) for rows in parts_as_arrays]


def _fault(rows: np.ndarray, num_rows: int) -> str | None:
    """Say what is wrong with a node's rows; None if nothing is."""
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        shape = list(rows.shape)
        return f"rows of shape {shape} and dtype {rows.dtype}: expected a list of whole numbers"
    if len(rows) == 0:
        return None
    low, high = int(rows.min()), int(rows.max())
    if low < 0 or high >= num_rows:
        return f"row {low if low < 0 else high}: expected 0 to {num_rows - 1}"
    ascending = bool((rows[1:] > rows[:-1]).all())  # the usual case, without sorting
    if not ascending and len(np.unique(rows)) < len(rows):
        return "a row twice: expected each once at most"
    return None


def split_node(
    rows: np.ndarray, labels: np.ndarray, test_fraction: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Split one node's ``rows`` into train and test with the same label distribution.

    Every label's share goes to the test part, to within one example (systematic sampling along the rows
    sorted by label, shuffled within a label). At least one example is left for training. ``labels`` are
    those of the whole training set.
    """
    shuffled = rng.permutation(rows)
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    steps = np.floor(np.arange(len(rows) + 1) * test_fraction + rng.random())
    test = np.diff(steps) > 0
    test[:1] &= not test.all()
    return np.sort(by_label[~test]), np.sort(by_label[test])


# From a table of counts, nodes by labels, to the rows that fill it.


def fill(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Give each node its number of rows of each label, at random.

    Parameters
    ----------
    labels : [N], 0 ... C-1
    counts : [nodes, C]; a column adds up to the number of rows with that label
    """
    nodes = np.empty(len(labels), dtype=np.int64)
    for label, column in enumerate(counts.T):
        rows = rng.permutation(np.flatnonzero(labels == label))
        nodes[rows] = np.repeat(np.arange(len(counts)), column)
    return list_rows(nodes, len(counts))


def list_rows(nodes: np.ndarray, num_nodes: int) -> list[np.ndarray]:
    """Return the rows of each node, ascending, given the node [N] of each row."""
    order = np.argsort(nodes, kind="stable")
    return np.split(order, np.searchsorted(nodes[order], np.arange(1, num_nodes)))


def equal_sizes(total: int, num_nodes: int) -> np.ndarray:
    """Return sizes [nodes] that differ by one at most and add up to ``total``."""
    return np.bincount(np.arange(total) % num_nodes, minlength=num_nodes)


def apportion(quotas: np.ndarray) -> np.ndarray:
    """Round quotas along the first axis to whole numbers whose sum is the (whole) sum of the quotas."""
    edges = np.rint(np.cumsum(quotas, axis=0)).astype(np.int64)
    return np.diff(edges, axis=0, prepend=0)


def fit(pattern: np.ndarray, sizes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Scale rows and columns of ``pattern`` until they sum to ``sizes`` and ``totals``; round.

    Of all tables with these margins, the fitted one is nearest to the pattern in relative entropy
    (iterative proportional fitting); zeros stay zero.

    Parameters
    ----------
    pattern : [nodes, C], not negative
    sizes, totals : [nodes] and [C], whole numbers with the same sum

    Raises
    ------
    UserError : when no such table exists
    """
    table = pattern.astype(float)
    for _ in range(10_000):
        table *= (sizes / table.sum(1))[:, None]
        table *= totals / table.sum(0)
        if np.abs(table.sum(1) - sizes).max() < 1e-6:
            return _rounded(table, sizes, totals)
    raise UserError(
        "the labels are too unevenly distributed for nodes of equal size with this distribution: choose "
        "another distribution or another data set"
    )


def _rounded(table: np.ndarray, sizes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Round every entry up or down so that both margins are met: a flow through the entries rounded up."""
    from scipy.sparse import csr_array  # takes a fifth of a second to import
    from scipy.sparse.csgraph import maximum_flow

    nodes, labels = table.shape
    table = np.where(np.abs(table - np.rint(table)) < 1e-5, np.rint(table), table)
    whole = np.floor(table).astype(np.int64)
    capacity = np.zeros((nodes + labels + 2,) * 2, dtype=np.int32)
    capacity[-2, :nodes] = sizes - whole.sum(1)
    capacity[:nodes, nodes:-2] = table > whole
    capacity[nodes:-2, -1] = totals - whole.sum(0)
    result = maximum_flow(csr_array(capacity), nodes + labels, nodes + labels + 1)
    return whole + result.flow.toarray()[:nodes, nodes:-2]
