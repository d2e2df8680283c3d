"""Grouping: which nodes have learnt alike? From selection vectors to groups.

A selection vector S_i [V] holds 1 where node i's own model is right about a validation example, else 0
(J. Liu's thesis on selective federated averaging, figure 6.1).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from strategies.shared.checks import require


class Grouping(ABC):
    """Divides nodes into groups."""

    @abstractmethod
    def __call__(self, selections: Tensor, seed: int) -> list[list[int]]:
        """Return groups of row numbers of ``selections`` [N, V]; every row is in exactly one."""


@dataclass(frozen=True)
class Overlap(Grouping):
    """Greedy grouping by overlap (thesis, Algorithm 3).

    Nodes are taken in ascending order; node i joins the first group in which (S_i . S_k) / V >= threshold
    for *all* members k, else it founds a group. Deviations from print, which would group dissimilar nodes
    and put a node into several groups: ">=" for "<", and a node stops at the first group that takes it.

    Parameters
    ----------
    threshold : share of the validation examples that both must be right about, in [0, 1]; 0 makes one
        group. It is compared with accuracies: what divides unequal nodes well is too low for iid ones
    """

    threshold: float = 0.25

    def __post_init__(self) -> None:
        """Refuse a threshold outside [0, 1]."""
        require(0 <= self.threshold <= 1, "grouping.threshold", self.threshold, "in [0, 1]")

    def __call__(self, selections: Tensor, seed: int) -> list[list[int]]:
        """Return the groups, in the order in which they are founded."""
        rows = selections.double()
        overlap = rows @ rows.T  # whole numbers: exact
        least = self.threshold * selections.shape[1] - 1e-9
        groups: list[list[int]] = []
        for i in range(len(rows)):
            fitting = (g for g in groups if bool((overlap[i, g] >= least).all()))
            group = next(fitting, None)
            if group is None:
                groups.append([i])
            else:
                group.append(i)
        return groups


@dataclass(frozen=True)
class KMeans(Grouping):
    """k-means over selection vectors, by scikit-learn (thesis, future work).

    Parameters
    ----------
    num_groups : k, at most the number of nodes
    """

    num_groups: int = 3

    def __post_init__(self) -> None:
        """Refuse less than one group."""
        require(self.num_groups >= 1, "grouping.num_groups", self.num_groups, "1 or more")

    def __call__(self, selections: Tensor, seed: int) -> list[list[int]]:
        """Return the non-empty clusters, ordered by their first node."""
        from sklearn.cluster import KMeans as Clusterer

        clusters = Clusterer(min(self.num_groups, len(selections)), n_init=10, random_state=seed)
        labels = torch.from_numpy(clusters.fit_predict(selections.double().numpy()))
        return [
            torch.nonzero(labels == label).flatten().tolist() for label in dict.fromkeys(labels.tolist())
        ]
