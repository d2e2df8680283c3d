"""The natural partition of a data set: by writer, or by the generator of synthetic data."""

import numpy as np

from baselines.errors import UserError
from strategies.shared.seeding import Purpose, generator

from .partitioner import Partitioner, list_rows


class ByWriter(Partitioner):
    """Each node holds what one writer wrote.

    Parameters
    ----------
    merge : with fewer nodes than writers, each node gets several, drawn at random and equally many to
        within one (Tenison 2022, section 4.1: "one user (or a set of users) unique to the client"); False
        asks for one node per writer
    """

    needs_labels = False

    def __init__(self, merge: bool) -> None:
        self.merge = merge

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Return the rows of writers 0 ... num_nodes - 1, or of equally many sets of writers."""
        if owners is None:
            raise UserError(
                "partitioner=by_writer needs a data set whose examples have writers, and this one has "
                "none: choose dataset=mnist_writers or femnist, or another partitioner, such as iid"
            )
        writers = int(owners.max()) + 1
        gone = writers - len(np.unique(owners))
        if gone and num_nodes >= writers:
            raise UserError(
                f"{gone} of {writers} writers have no examples left for a node: lower validation_size"
            )
        if writers == num_nodes:
            return list_rows(owners, num_nodes)
        if not self.merge or num_nodes > writers:
            hint = "" if num_nodes > writers else ", or partitioner.merge=true for nodes of several writers"
            raise UserError(
                f"the data set has {writers} writers but num_nodes={num_nodes}: set num_nodes="
                f"{writers}{hint}"
            )
        order = generator(seed, Purpose.PARTITION).permutation(writers)
        node_of = np.empty(writers, dtype=np.int64)
        for node, mine in enumerate(np.array_split(order, num_nodes)):
            node_of[mine] = node
        return list_rows(node_of[owners], num_nodes)
