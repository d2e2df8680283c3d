"""The partitions that flwr-datasets has, row for row, from the labels alone.

They are made anew here: to import flwr-datasets takes two seconds, and its own take milliseconds for each
node. Tests hold them beside it.
"""

import numpy as np

from baselines.errors import UserError
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, generator

from .partitioner import Partitioner

TRIES = 11  # draws until every node has enough, as many as flwr-datasets makes


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
    """Each label is shared out in proportions drawn from Dirichlet(alpha) (Hsu et al. 2019).

    It is flwr-datasets' ``DirichletPartitioner`` without balancing.

    Parameters
    ----------
    alpha : concentration above 0; small is skewed, large is nearly iid
    min_size : draw again until every node has so many examples
    """

    def __init__(self, alpha: float, min_size: int) -> None:
        require(0 < alpha < float("inf"), "partitioner.alpha", alpha, "above 0")
        require(min_size >= 1, "partitioner.min_size", min_size, "1 or more")
        self.alpha = alpha
        self.min_size = min_size

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Draw the shares; sizes are unequal."""
        rng = np.random.default_rng(int(generator(seed, Purpose.PARTITION).integers(2**31)))
        for _ in range(TRIES):
            parts = self._drawn(labels, num_nodes, rng)
            if min(map(len, parts)) >= self.min_size:
                return parts
        raise UserError(
            f"partitioner=dirichlet with alpha={self.alpha} leaves a node of {num_nodes} with fewer "
            f"than partitioner.min_size={self.min_size} examples: raise alpha, or lower min_size or "
            "num_nodes"
        )

    def _drawn(self, labels: np.ndarray, num_nodes: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return one draw of the partitions, whatever their sizes."""
        pieces = []
        for label in np.unique(labels):
            rows = np.nonzero(labels == label)[0]
            shares = rng.dirichlet(np.full(num_nodes, float(self.alpha)))
            with np.errstate(invalid="ignore"):  # shares of an alpha next to 0 are no numbers
                ends = (np.cumsum(shares) * len(rows)).astype(int)[:-1]
            pieces.append(np.split(rows, ends))
        return [np.sort(np.concatenate(mine)) for mine in zip(*pieces, strict=True)]
