"""A partitioner: which rows does each node hold?"""

import numpy as np

from baselines.partitioners import Partitioner


class Sorted(Partitioner):
    """Rows sorted by label, cut into equal parts: most nodes hold one label."""

    def __call__(
        self,
        labels: np.ndarray,
        owners: np.ndarray | None,
        num_nodes: int,
        seed: int,
    ) -> list[np.ndarray]:
        order = np.argsort(labels, kind="stable")
        return [np.sort(part) for part in np.array_split(order, num_nodes)]
