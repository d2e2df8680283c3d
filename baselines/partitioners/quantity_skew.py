"""Nodes of very different sizes, regardless of labels.

Li, Diao, Chen, He: *Federated Learning on Non-IID Data Silos*, 2021, section 4.3; Tenison 2022, section
4.4: the shares are drawn from Dirichlet(0.5).
"""

import numpy as np

from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, generator

from .partitioner import Partitioner, apportion


class QuantitySkew(Partitioner):
    """Every node holds one example at least, and its drawn share of the others.

    Parameters
    ----------
    alpha : concentration above 0 of the sizes; large makes them equal
    """

    needs_labels = False

    def __init__(self, alpha: float) -> None:
        require(0 < alpha < float("inf"), "partitioner.alpha", alpha, "above 0")
        self.alpha = alpha

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Draw the sizes, shuffle, cut."""
        rng = generator(seed, Purpose.PARTITION)
        shares = rng.dirichlet(np.full(num_nodes, self.alpha))
        sizes = 1 + apportion(shares / shares.sum() * (len(labels) - num_nodes))
        parts = np.split(rng.permutation(len(labels)), np.cumsum(sizes)[:-1])
        return [np.sort(part) for part in parts]
