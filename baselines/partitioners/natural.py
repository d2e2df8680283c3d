"""The partition that a data set has by nature: by writer, by generator."""

import numpy as np

from baselines.errors import UserError

from .partitioner import Partitioner


class Natural(Partitioner):
    """Each node holds the rows of one owner."""

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Return the rows of owners 0 ... num_nodes - 1; there must be exactly so many."""
        if owners is None:
            raise UserError(
                "partitioner=natural needs a data set whose examples have owners, and this one has "
                "none: choose partitioner=iid or partitioner=dirichlet"
            )
        found = int(owners.max()) + 1
        if found != num_nodes:
            raise UserError(
                f"the data set has {found} natural partitions but num_nodes={num_nodes}: set "
                f"num_nodes={found}"
            )
        return [np.flatnonzero(owners == owner) for owner in range(num_nodes)]
