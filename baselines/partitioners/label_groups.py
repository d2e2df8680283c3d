"""Groups of nodes, each with its own labels, mixed with a balanced part.

Liu: *Federated Learning Model Complexity vs Robustness to non-IID data and Selective Federated Learning*,
2019, section 3.2.1 and table 3.1: N % of the data are dealt at random to three groups of equal share, the
rest goes where its label belongs; a group's data are dealt equally to its nodes.
"""

import numpy as np

from baselines.errors import UserError
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, generator

from .partitioner import Partitioner


class LabelGroups(Partitioner):
    """Nodes 0 ... form the first group, and so on; groups have equally many nodes, to within one.

    Parameters
    ----------
    balanced : fraction of the data that is dealt at random; 1 is iid
    groups : the labels of each group; every label of the data set is in one of them
    """

    def __init__(self, balanced: float, groups: list[list[int]]) -> None:
        require(0 <= balanced <= 1, "partitioner.balanced", balanced, "a fraction in [0, 1]")
        listed = [label for group in groups for label in group]
        if not groups or len(set(listed)) < len(listed):
            raise UserError(f"partitioner.groups={groups}: expected lists of labels, no label twice")
        self.balanced = balanced
        self.groups = groups

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Draw the balanced part, add each group's own, deal."""
        missing = sorted(set(np.unique(labels).tolist()) - {label for g in self.groups for label in g})
        if missing:
            raise UserError(f"partitioner.groups leaves out the data set's labels {missing}: add them")
        if num_nodes < len(self.groups):
            raise UserError(
                f"num_nodes={num_nodes} is less than partitioner=label_groups' {len(self.groups)} groups: "
                "raise num_nodes"
            )
        rng = generator(seed, Purpose.PARTITION)
        shuffled = rng.permutation(len(labels))
        cut = round(self.balanced * len(labels))
        balanced, rest = np.array_split(shuffled[:cut], len(self.groups)), shuffled[cut:]
        parts: list[np.ndarray] = []
        members = np.array_split(np.arange(num_nodes), len(self.groups))
        for group, mixed, nodes in zip(self.groups, balanced, members, strict=True):
            rows = rng.permutation(np.concatenate([mixed, rest[np.isin(labels[rest], group)]]))
            if len(rows) < len(nodes):
                raise UserError(
                    f"the {len(rows)} examples of the group with labels {group} are too few for its "
                    f"{len(nodes)} nodes: lower num_nodes"
                )
            parts += np.array_split(rows, len(nodes))
        return [np.sort(part) for part in parts]
