"""A few labels dominate each node, the others are noise.

Tenison: *Generalization in Federated Learning*, 2022, section 4.2 and table 4.3: two of ten classes make up
90 % of a node, the other eight 10 % in equal parts. Every row is dealt exactly once, so the nodes in which
a class dominates share evenly what the others' noise leaves of it. (In the printed table the noise is 1 %
of the dominant count per class, 7 % of a node: ``share`` 0.93. Its three nodes also differ in size, from
3,590 to 5,536 rows, and 2,247 of label 1's 6,742 rows are a third: ``even`` false.)
"""

import numpy as np

from baselines.errors import UserError
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, generator

from .partitioner import Partitioner, apportion, fill

MOST_DRAWS = 10_000


class DominantLabels(Partitioner):
    """Label skew with noise; sizes follow from the labels.

    Parameters
    ----------
    labels_per_node : how many labels dominate a node
    share : the fraction of a node's examples that they make together
    even : whether each label dominates in equally many nodes, to within one; otherwise each node draws its
        labels for itself, again until every label has a node, and sizes differ more
    """

    def __init__(self, labels_per_node: int, share: float, even: bool = True) -> None:
        require(labels_per_node >= 1, "partitioner.labels_per_node", labels_per_node, "1 or more")
        require(0 < share <= 1, "partitioner.share", share, "a fraction in (0, 1]")
        self.labels_per_node = labels_per_node
        self.share = share
        self.even = even

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Choose each node's labels at random, then deal the rows."""
        _, labels = np.unique(labels, return_inverse=True)
        totals = np.bincount(labels)
        if self.labels_per_node > len(totals):
            raise UserError(
                f"partitioner.labels_per_node={self.labels_per_node} is more than the data set's "
                f"{len(totals)} labels: lower it"
            )
        if self.share * len(totals) < self.labels_per_node:
            raise UserError(
                f"partitioner.share={self.share} makes the dominant labels the rarest: expected "
                f"{self.labels_per_node}/{len(totals)} or above"
            )
        if len(totals) > num_nodes * self.labels_per_node:
            raise UserError(
                f"partitioner=dominant_labels: {num_nodes} nodes with {self.labels_per_node} labels each "
                f"leave some of the {len(totals)} labels without a node: raise num_nodes or "
                "partitioner.labels_per_node"
            )
        if num_nodes * self.labels_per_node > len(labels):
            raise UserError(
                f"partitioner=dominant_labels: {num_nodes} nodes with {self.labels_per_node} labels each "
                f"need more than the {len(labels)} training examples: lower num_nodes or "
                "partitioner.labels_per_node"
            )
        rng = generator(seed, Purpose.PARTITION)
        choose = _deal_labels if self.even else _draw_labels
        dominant = choose(len(totals), num_nodes, self.labels_per_node, rng)
        quotas = self._quotas(totals, dominant)
        if quotas[dominant].min() < 1:
            label = int(np.argmin(np.where(dominant, quotas, np.inf).min(0)))
            raise UserError(
                f"partitioner=dominant_labels: the {totals[label]} examples of label {label} are too few "
                f"for the {dominant[:, label].sum()} nodes in which it dominates: lower num_nodes or raise "
                "partitioner.share"
            )
        return fill(labels, apportion(quotas), rng)

    def _quotas(self, totals: np.ndarray, dominant: np.ndarray) -> np.ndarray:
        """Return the counts [nodes, C] before rounding, given each node's dominant labels.

        With x_k node k's noise per label, m_k its dominant count and r = (1 - share) / share:
        x_k = r m_k / (C - labels per node), and m_k is the sum over its dominant labels of an equal part of
        what the other nodes' noise leaves of the label: linear equations in x.
        """
        others = max(len(totals) - self.labels_per_node, 1)
        ratio = (1 - self.share) / self.share / others
        part = dominant / dominant.sum(0)  # node k's part of a label's remaining rows
        noise = np.linalg.solve(np.eye(len(part)) + ratio * part @ ~dominant.T, ratio * part @ totals)
        left = totals - noise @ ~dominant
        return np.where(dominant, part * left, noise[:, None])


def _deal_labels(num_labels: int, num_nodes: int, per_node: int, rng: np.random.Generator) -> np.ndarray:
    """Return [nodes, labels] of bool: deal from shuffled decks of labels, no label twice to one node."""
    dominant = np.zeros((num_nodes, num_labels), dtype=bool)
    deck: list[int] = []
    for mine in dominant:
        for _ in range(per_node):
            if all(mine[label] for label in deck):
                deck += rng.permutation(num_labels).tolist()
            mine[deck.pop(next(i for i, label in enumerate(deck) if not mine[label]))] = True
    return dominant


def _draw_labels(num_labels: int, num_nodes: int, per_node: int, rng: np.random.Generator) -> np.ndarray:
    """Return [nodes, labels] of bool: nodes draw independently; repeat until every label has a node.

    Raises
    ------
    UserError : when no draw succeeds
    """
    for _ in range(MOST_DRAWS):
        order = rng.permuted(np.tile(np.arange(num_labels), (num_nodes, 1)), axis=1)
        dominant = order < per_node
        if dominant.any(0).all():
            return dominant
    raise UserError(
        f"partitioner=dominant_labels: with {num_nodes} nodes that draw {per_node} of {num_labels} labels "
        "each, some label is always left over: raise num_nodes or partitioner.labels_per_node, or set "
        "partitioner.even=true"
    )
