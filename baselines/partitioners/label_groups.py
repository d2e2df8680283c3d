"""Groups of nodes, each with its own labels, mixed with a balanced part.

Liu: *Federated Learning Model Complexity vs Robustness to non-IID data and Selective Federated Learning*,
2019, section 3.2.1 and table 3.1: N % of the data are dealt at random to three groups in equal shares, the
rest to the group of its label; a group's data are dealt equally to its nodes.

Table 3.1 can also be read per partition: each holds N % random data and (100 - N) % of its own labels, and
all have one size, "13333 images" (chapter 4). That is ``group_share`` 0.26667 of the 50,000 left after
10,000 are set aside, and nearly all of labels 4 to 6.
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
    group_share : the fraction of all rows that each group has, ``balanced`` of them at random; the others are
        dealt to nobody. None deals all rows, and groups are as large as their labels are frequent
    """

    def __init__(self, balanced: float, groups: list[list[int]], group_share: float | None = None) -> None:
        require(0 <= balanced <= 1, "partitioner.balanced", balanced, "a fraction in [0, 1]")
        listed = [label for group in groups for label in group]
        if not groups or len(set(listed)) < len(listed):
            raise UserError(f"partitioner.groups={groups}: expected lists of labels, no label twice")
        valid = group_share is None or 0 < group_share * len(groups) <= 1
        require(
            valid, "partitioner.group_share", group_share, f"above 0, at most 1 / {len(groups)}, or null"
        )
        self.balanced = balanced
        self.groups = groups
        self.group_share = group_share

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Draw the balanced part, add each group's own labels, deal to the nodes."""
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
        dealt = (
            self._deal_all(labels, shuffled) if self.group_share is None else self._deal(labels, shuffled)
        )
        parts: list[np.ndarray] = []
        members = np.array_split(np.arange(num_nodes), len(self.groups))
        for group, own, nodes in zip(self.groups, dealt, members, strict=True):
            rows = rng.permutation(own)
            if len(rows) < len(nodes):
                raise UserError(
                    f"the {len(rows)} examples of the group with labels {group} are too few for its "
                    f"{len(nodes)} nodes: lower num_nodes"
                )
            parts += np.array_split(rows, len(nodes))
        return [np.sort(part) for part in parts]

    def _deal_all(self, labels: np.ndarray, shuffled: np.ndarray) -> list[np.ndarray]:
        """Return each group's rows: a share of the balanced part, and the rest by label."""
        cut = round(self.balanced * len(labels))
        balanced, rest = np.array_split(shuffled[:cut], len(self.groups)), shuffled[cut:]
        return [
            np.concatenate([mixed, rest[np.isin(labels[rest], group)]])
            for group, mixed in zip(self.groups, balanced, strict=True)
        ]

    def _deal(self, labels: np.ndarray, shuffled: np.ndarray) -> list[np.ndarray]:
        """Return equally many rows for each group: random ones, then remaining ones of its own labels."""
        assert self.group_share is not None
        size = round(self.group_share * len(labels))
        mixed = round(self.balanced * size)
        cut = mixed * len(self.groups)
        balanced, rest = np.array_split(shuffled[:cut], len(self.groups)), shuffled[cut:]
        own = [rest[np.isin(labels[rest], group)] for group in self.groups]
        most = min(map(len, own))
        if most < size - mixed:
            raise UserError(
                f"partitioner.group_share={self.group_share} is more than the data give: a group has {most} rows of "
                f"its own labels for {size - mixed}: lower it"
            )
        return [
            np.concatenate([some, rows[: size - mixed]]) for some, rows in zip(balanced, own, strict=True)
        ]
