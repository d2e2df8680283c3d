"""The pathological partition: each node holds a few shards of the rows sorted by label.

McMahan et al. (2017), section 3: 200 shards of 300 digits, two for each of 100 nodes. flwr-datasets'
ShardPartitioner drops rows that do not fill a shard, so it is not used.
"""

import numpy as np

from baselines.errors import UserError
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, generator

from .partitioner import Partitioner


class Pathological(Partitioner):
    """Most nodes hold as many labels as shards.

    Parameters
    ----------
    shards_per_node : shards of equal size, dealt at random
    """

    def __init__(self, shards_per_node: int) -> None:
        require(shards_per_node >= 1, "partitioner.shards_per_node", shards_per_node, "1 or more")
        self.shards_per_node = shards_per_node

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Sort by label (shuffled within a label), cut into shards, deal."""
        shards = num_nodes * self.shards_per_node
        if shards > len(labels):
            raise UserError(
                f"partitioner=pathological with num_nodes={num_nodes} and partitioner.shards_per_node="
                f"{self.shards_per_node} makes {shards} shards of {len(labels)} examples: lower one of them"
            )
        rng = generator(seed, Purpose.PARTITION)
        shuffled = rng.permutation(len(labels))
        parts = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], shards)
        dealt = rng.permutation(shards).reshape(num_nodes, self.shards_per_node)
        return [np.sort(np.concatenate([parts[i] for i in mine])) for mine in dealt]
