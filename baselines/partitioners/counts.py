"""From a table of counts, nodes by labels, to the rows that fill it."""

import numpy as np

from baselines.errors import UserError


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
    return rows_of(nodes, len(counts))


def rows_of(nodes: np.ndarray, num_nodes: int) -> list[np.ndarray]:
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
    """Scale rows and columns of ``pattern`` until they add up to ``sizes`` and ``totals``; round.

    Of all tables with these margins the fitted one is nearest to the pattern in relative entropy
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
    from scipy.sparse import csr_array  # takes a fifth of a second to import, and few need it
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
