"""Nodes that hold all of the data."""

import numpy as np

from baselines.errors import UserError

from .partitioner import Partitioner


class Centralized(Partitioner):
    """One node with all of the data: training without federation."""

    needs_labels = False

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Return all rows, for the only node."""
        if num_nodes != 1:
            raise UserError(
                f"partitioner=centralized is one node with all data, but num_nodes={num_nodes}: set "
                "num_nodes=1, or choose partitioner=replicated to give everything to every node"
            )
        return [np.arange(len(labels))]


class Replicated(Partitioner):
    """Every node holds a copy of everything: rows are not dealt once but ``num_nodes`` times.

    The thesis on FedER (2022) does not say how it divides the data; its accuracies fit this reading.
    """

    needs_labels = False

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Return all rows for each node."""
        return [np.arange(len(labels))] * num_nodes
