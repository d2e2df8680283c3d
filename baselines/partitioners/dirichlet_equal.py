"""FedExP's partition: nodes of equal size, each with its own label distribution from Dirichlet(alpha).

Jhunjhunwala, Wang, Joshi (ICLR 2023), section 6. Their code, after Acar et al. (FedDyn, ICLR 2021), draws a
node, then a label from the node's distribution, and again if that label has no example left. Here the label
is drawn among those with examples left: the same distribution, but it terminates. Deviation: they drop the
remainder of N / nodes; here sizes differ by one at most.
"""

from bisect import bisect_right

import numpy as np

from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, generator

from .partitioner import Partitioner, equal_sizes, fill


class DirichletEqual(Partitioner):
    """Equal sizes, skewed labels.

    Parameters
    ----------
    alpha : concentration above 0; small is skewed, large is nearly iid
    """

    def __init__(self, alpha: float) -> None:
        require(0 < alpha < float("inf"), "partitioner.alpha", alpha, "above 0")
        self.alpha = alpha

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Draw node by node and label by label until every row has its node."""
        rng = generator(seed, Purpose.PARTITION)
        _, labels = np.unique(labels, return_inverse=True)
        left = np.bincount(labels)
        priors = rng.dirichlet(np.full(len(left), self.alpha), num_nodes)
        order = rng.permutation(np.repeat(np.arange(num_nodes), equal_sizes(len(labels), num_nodes)))
        counts = np.zeros((num_nodes, len(left)), dtype=np.int64)
        cumulative = _cumulative(priors, left)
        for node, draw in zip(order.tolist(), rng.random(len(labels)).tolist(), strict=True):
            steps = cumulative[node]
            label = bisect_right(steps, draw * steps[-1])
            counts[node, label] += 1
            left[label] -= 1
            if left[label] == 0:
                cumulative = _cumulative(priors, left)
        return fill(labels, counts, rng)


def _cumulative(priors: np.ndarray, left: np.ndarray) -> list[list[float]]:
    """Return each node's cumulative distribution over the labels with examples left.

    A node whose labels are all, or practically all, used up draws from the remaining examples.
    """
    allowed = np.where(left > 0, priors, 0.0)
    gone = allowed.sum(1) < np.finfo(float).tiny  # a small alpha gives priors of 1e-320, with few bits
    allowed[gone] = left
    steps: list[list[float]] = np.cumsum(allowed, axis=1).tolist()
    return steps
