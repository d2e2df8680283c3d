"""The partitions of flwr-datasets, computed with NumPy.

They are the same as those of flwr-datasets' own classes, which take 0.7 s of processor time to import,
milliseconds per node, and a second for a column of labels.
"""

import numpy as np

from baselines.errors import UserError
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, generator

from .partitioner import Partitioner

ATTEMPTS = 11  # as in flwr-datasets


class Iid(Partitioner):
    """A random and equal share of the data for every node."""

    needs_labels = False

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Shuffle, then cut into parts of equal size, as ``IidPartitioner`` does."""
        order = generator(seed, Purpose.PARTITION).permutation(len(labels))
        return [np.sort(part) for part in np.array_split(order, num_nodes)]


class Dirichlet(Partitioner):
    """Each label is shared out in proportions drawn from Dirichlet(alpha) (Yurochkin et al. 2019).

    Parameters
    ----------
    alpha : concentration above 0; small is skewed, large is nearly iid
    min_size : draw again until every node has this many examples
    """

    def __init__(self, alpha: float, min_size: int) -> None:
        require(0 < alpha < float("inf"), "partitioner.alpha", alpha, "above 0")
        require(min_size >= 1, "partitioner.min_size", min_size, "1 or more")
        self.alpha = alpha
        self.min_size = min_size

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Draw the shares as ``DirichletPartitioner`` does, without balancing; sizes are unequal."""
        if self.min_size * num_nodes > len(labels):
            raise UserError(
                f"partitioner.min_size={self.min_size} for each of num_nodes={num_nodes} nodes is more "
                f"than the {len(labels)} training examples: lower one of them"
            )
        random = np.random.default_rng(int(generator(seed, Purpose.PARTITION).integers(2**31)))
        for _ in range(ATTEMPTS):
            parts = _draw(labels, np.full(num_nodes, float(self.alpha)), random)
            if min(map(len, parts)) >= self.min_size:
                return parts
        raise UserError(
            f"partitioner=dirichlet with alpha={self.alpha} leaves a node of {num_nodes} with fewer "
            f"than partitioner.min_size={self.min_size} examples: raise alpha, or lower min_size or "
            "num_nodes"
        )


def _draw(labels: np.ndarray, alpha: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Cut the rows of each label in separately drawn proportions; return each node's rows."""
    shares = []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        cuts = np.cumsum(random.dirichlet(alpha)) * len(rows)
        shares.append(np.split(rows, cuts.astype(int)[:-1]))
    return [np.sort(np.concatenate(own)) for own in zip(*shares, strict=True)]
