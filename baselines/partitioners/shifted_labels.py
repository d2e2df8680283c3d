"""One label distribution, shifted by one digit from node to node.

Gengler, Beaussart, Yuan: *Personalized Federated Image classification using Weight Erosion*, section
IV.D and figure 1. Node 0 has the printed distribution p; node k has it shifted k digits to the left:
p_k[d] = p[(d + k) mod 10]. (The example in their text shifts the other way; their words and code agree.)

``pairs`` is the text's example of nodes without a shared label, which they did not run: node 0 has digits 0
and 1, node 1 has 2 and 3, and node 5 begins again. Unless ``chunked``, every pair must be equally frequent.
"""

from math import ceil
from typing import Literal

import numpy as np

from baselines.errors import UserError
from strategies.parts.weighting import EVERY_NODE
from strategies.shared.seeding import Purpose, generator

from .partitioner import Partitioner, equal_sizes, fill, fit

DISTRIBUTIONS = {
    "A": (0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1),
    "B": (0, 0, 0, 0, 0.2, 0.6, 0.2, 0, 0, 0),
    "C": (0.25, 0.25, 0.25, 0.25, 0, 0, 0, 0, 0, 0),
    "D": (0, 0, 0, 0.4, 0.1, 0, 0.1, 0.4, 0, 0),
    "E": (0, 0, 0, 0.1, 0.2, 0.4, 0.2, 0.1, 0, 0),
    "F": (0, 0, 0.1, 0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0),
    "G": (0.91, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01),
}
PAIRS = "pairs"
WITHOUT_SHARED_LABELS = {PAIRS: (0.5, 0.5, 0, 0, 0, 0, 0, 0, 0, 0)}
SHIFTS = {PAIRS: -2}  # digits to the left from node to node; 1 for those of figure 1
CHUNKS = 100  # per digit, as in the authors' code


class ShiftedLabels(Partitioner):
    """Nodes of equal size, each with its own mode.

    Unless ``chunked``, every row is dealt exactly once. As digits are not equally frequent, the
    distributions are then only as close to the printed ones as equal sizes allow.

    Parameters
    ----------
    distribution : a letter of the report's figure 1, A to G, or ``pairs``
    requester : judge models on the test examples that follow this node's distribution: of each digit the
        first floor(p_k[d] * n_d); None judges them on the whole test set; ``each`` judges a node's own
        model on those that follow the node's distribution, and a model of several nodes on all
    chunked : deal as the authors' code does: in the order of the data, in chunks of floor(n_d / 99) rows.
        Where a node wants no whole number of chunks it gets the next higher one, and the next node begins
        after the next lower one: rows are dealt more than once, and others never (C with 20 and 100 nodes,
        G with 20, 50 and 100)
    """

    def __init__(self, distribution: str, requester: int | Literal["each"] | None, chunked: bool) -> None:
        known = DISTRIBUTIONS | WITHOUT_SHARED_LABELS
        if distribution not in known:
            raise UserError(
                f"partitioner.distribution={distribution} is unknown: expected a letter from A to G "
                f"(figure 1 of the Weight Erosion report), or {PAIRS}"
            )
        self.fractions = np.array(known[distribution])
        self.shift = SHIFTS.get(distribution, 1)
        self.requester = requester
        self.chunked = chunked

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Deal the digits; the authors' variant is not random."""
        digits = len(self.fractions)
        different = digits // abs(self.shift)  # nodes until the first one's digits come again
        if num_nodes % different:
            raise UserError(
                f"partitioner=shifted_labels with num_nodes={num_nodes}: expected a multiple of {different}, "
                "so that every digit is needed equally often"
            )
        valid = self.requester in (None, EVERY_NODE, *range(num_nodes))
        if not valid:
            expected = f"a node, 0 to {num_nodes - 1}, {EVERY_NODE}, or null"
            raise UserError(f"partitioner.requester={self.requester} is out of range: expected {expected}")
        totals = np.bincount(labels, minlength=digits)
        if len(totals) > digits or totals.min() < num_nodes:
            raise UserError(
                f"partitioner=shifted_labels needs labels 0 to {digits - 1} and at least num_nodes="
                f"{num_nodes} examples of each, but the data set has {totals.tolist()}: lower num_nodes or "
                "choose another data set"
            )
        pattern = np.stack([self._fractions_of(node) for node in range(num_nodes)])
        if self.chunked:
            return _chunks(labels, CHUNKS * pattern / (num_nodes / digits))
        counts = fit(pattern, equal_sizes(len(labels), num_nodes), totals)
        return fill(labels, counts, generator(seed, Purpose.PARTITION))

    def test_rows(self, labels: np.ndarray) -> np.ndarray:
        """Return the requester's part of the test set, in the order of the data."""
        if not isinstance(self.requester, int):
            return super().test_rows(labels)
        return self._rows_like(labels, self.requester)

    def own_test_rows(self, labels: np.ndarray, partition_id: int) -> np.ndarray:
        if self.requester != EVERY_NODE:
            return self.test_rows(labels)
        return self._rows_like(labels, partition_id)

    def _fractions_of(self, node: int) -> np.ndarray:
        """Return the fraction of each digit in a node's data, [10]."""
        return np.roll(self.fractions, -self.shift * node)

    def _rows_like(self, labels: np.ndarray, node: int) -> np.ndarray:
        """Return the rows of the test set that follow a node's distribution."""
        parts = []
        for digit, fraction in enumerate(self._fractions_of(node)):
            rows = np.flatnonzero(labels == digit)
            parts.append(rows[: int(fraction * len(rows) + 1e-9)])
        return np.sort(np.concatenate(parts))


def _chunks(labels: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Deal ``sizes`` chunks [nodes, digits], floats, in the data's order.

    The additions are those of the authors' code, since at whole numbers their rounding decides.
    """
    parts: list[list[np.ndarray]] = [[] for _ in sizes]
    for digit, column in enumerate(sizes.T):
        rows = np.flatnonzero(labels == digit)
        size = len(rows) // (CHUNKS - 1)
        first = 0
        for part, chunks in zip(parts, column, strict=True):
            end = first + chunks
            after = ceil(end)
            part.append(rows[first * size : after * size])
            first = after - (after > end)
    return [np.sort(np.concatenate(part)) for part in parts]
