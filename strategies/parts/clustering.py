"""Group nodes that have learnt similar things, by their selection vectors.

A selection vector S_i [V] holds 1 where node i's own model is right about a validation example, else 0
(J. Liu's thesis on selective federated averaging, figure 6.1).

The threshold of similarity "is calculated as a hyperparameter using a separate validation set" there, half of
it; by which measure is not stated. Here ``tuned`` takes the setting with the best separated groups on one half
of the examples, by mean silhouette (Rousseeuw 1987), and groups the nodes by the other half. Below 0.25 "no
substantial structure has been found" (Kaufman and Rousseeuw 1990, table 4): all nodes are one group.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from strategies.shared.checks import require
from strategies.shared.flower_names import HasHooks

TUNED = "tuned"
MIN_SILHOUETTE = 0.25  # silhouette
MAX_THRESHOLDS = 50  # thresholds
NUM_TUNING_SAMPLES = 10  # samples of the examples that a threshold is tried on


class Grouping(HasHooks, ABC):
    """Divides nodes into groups."""

    @property
    def least_examples(self) -> int:
        """How many validation examples it takes: one, or two where half of them tune it."""
        return 1

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
        group. It is compared with accuracies: what divides unequal nodes well is too low for iid ones.
        ``tuned`` chooses it on half of the examples, and groups by the other half
    """

    threshold: float | str = 0.25

    def __post_init__(self) -> None:
        """Refuse a threshold outside [0, 1]."""
        if self.threshold != TUNED:
            number = isinstance(self.threshold, int | float) and 0 <= self.threshold <= 1
            require(number, "grouping.threshold", self.threshold, "in [0, 1], or tuned")

    @property
    def least_examples(self) -> int:
        return 2 if self.threshold == TUNED else 1

    def __call__(self, selections: Tensor, seed: int) -> list[list[int]]:
        """Return the groups, in the order in which they are founded."""
        if self.threshold != TUNED:
            return self._groups(selections, float(self.threshold))
        known, others = _split_examples(selections)
        return self._groups(
            others, _find_threshold(others, self._tune_pairs(known, np.random.default_rng(seed)))
        )

    def _tune_pairs(self, selections: Tensor, rng: np.random.Generator) -> int:
        """Return how many pairs of nodes should be alike; all of them where no groups are substantial.

        It is tried on samples of the examples, so that it carries over to others. It is a number of pairs and
        no overlap, since all overlaps are lower where examples are harder.
        """
        count, pairs = selections.shape[1], len(selections) * (len(selections) - 1) // 2
        samples = [selections[:, rng.integers(count, size=count)] for _ in range(NUM_TUNING_SAMPLES)]
        distances = [_compute_distances(sample) for sample in samples]
        best, most = pairs, MIN_SILHOUETTE
        for alike in np.unique(np.linspace(1, pairs - 1, MAX_THRESHOLDS, dtype=int)) if pairs > 1 else ():
            groups = [self._groups(sample, _find_threshold(sample, alike)) for sample in samples]
            score = float(np.mean([_silhouette(*pair) for pair in zip(distances, groups, strict=True)]))
            if score > most:
                best, most = int(alike), score
        return best

    def _groups(self, selections: Tensor, threshold: float) -> list[list[int]]:
        overlap = _overlaps(selections)
        least = threshold * selections.shape[1] - 1e-9
        groups: list[list[int]] = []
        for i in range(len(overlap)):
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
    num_groups : k, at most the number of nodes; ``tuned`` chooses it on half of the validation examples,
        and groups by the other half
    """

    num_groups: int | str = 3

    def __post_init__(self) -> None:
        """Refuse less than one group."""
        if self.num_groups != TUNED:
            whole = isinstance(self.num_groups, int) and self.num_groups >= 1
            require(whole, "grouping.num_groups", self.num_groups, "1 or more, or tuned")

    @property
    def least_examples(self) -> int:
        return 2 if self.num_groups == TUNED else 1

    def __call__(self, selections: Tensor, seed: int) -> list[list[int]]:
        """Return the non-empty clusters, ordered by their first node."""
        if self.num_groups != TUNED:
            return self._groups(selections, int(self.num_groups), seed)
        known, others = _split_examples(selections)
        distances = _compute_distances(known)
        best, most = 1, MIN_SILHOUETTE
        for count in range(2, len(selections)):
            if (score := _silhouette(distances, self._groups(known, count, seed))) > most:
                best, most = count, score
        return self._groups(others, best, seed)

    def _groups(self, selections: Tensor, count: int, seed: int) -> list[list[int]]:
        from sklearn.cluster import KMeans as Clusterer

        clusters = Clusterer(min(count, len(selections)), n_init=10, random_state=seed)
        labels = torch.from_numpy(clusters.fit_predict(selections.double().numpy()))
        return [
            torch.nonzero(labels == label).flatten().tolist() for label in dict.fromkeys(labels.tolist())
        ]


def _overlaps(selections: Tensor) -> Tensor:
    """Return for each two rows how many examples both are right about, [N, N]."""
    rows = selections.double()
    return rows @ rows.T  # whole numbers: exact


def _find_threshold(selections: Tensor, alike: int) -> float:
    """Return a threshold that ``alike`` pairs of rows reach; 0 where all pairs should."""
    above = torch.triu_indices(len(selections), len(selections), 1)
    shares = (_overlaps(selections)[*above] / selections.shape[1]).sort(descending=True).values
    return float(shares[alike - 1 : alike + 1].mean()) if alike < len(shares) else 0.0


def _compute_distances(selections: Tensor) -> np.ndarray:
    """Return in which share of the examples each two rows differ, [N, N]."""
    shares: np.ndarray = (selections[:, None] != selections[None]).double().mean(2).numpy()
    return shares


def _silhouette(distances: np.ndarray, groups: Sequence[Sequence[int]]) -> float:
    """Return the mean silhouette of groups of rows; 0 of a single group, and of groups of one row each."""
    if len(groups) in (1, len(distances)):
        return 0.0
    from sklearn.metrics import silhouette_score

    labels = np.empty(len(distances), dtype=int)
    for label, rows in enumerate(groups):
        labels[rows] = label
    return float(silhouette_score(distances, labels, metric="precomputed"))


def _split_examples(selections: Tensor) -> tuple[Tensor, Tensor]:
    """Return every other validation example, and those between."""
    if selections.shape[1] < 2:
        raise ValueError("grouping=tuned needs at least 2 validation examples: raise validation_size")
    return selections[:, ::2], selections[:, 1::2]
