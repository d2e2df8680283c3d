"""Holdings: who holds which rows of the data, for one seed."""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch

from baselines.datasets import Dataset
from baselines.errors import UserError
from baselines.partitioners import Partitioner, checked, split_node
from clients import Examples
from clients.examples import Transform
from strategies.shared.seeding import Purpose, generator

from .settings import Settings

Dealt = tuple[np.ndarray, np.ndarray]  # the rows of all nodes, and the length of each one's two lists


@dataclass(frozen=True)
class Holdings:
    """The rows of the training set that each node holds, and those that the server keeps.

    Parameters
    ----------
    settings : how many nodes there are, and what is set aside for tests and validation
    dataset : whose rows they are
    partitioner : how the training set is distributed over the nodes
    """

    settings: Settings
    dataset: Dataset
    partitioner: Partitioner

    @cached_property
    def validation_rows(self) -> np.ndarray:
        """The rows of the training set that no node holds: the server's validation set."""
        size, total = self.settings.validation_size, len(self.dataset.train_targets)
        if not isinstance(size, int) or not 0 <= size < total:
            raise UserError(
                f"validation_size={size} is out of range: expected 0 or more, below {total} examples"
            )
        return np.sort(generator(self.settings.seed, Purpose.VALIDATION).permutation(total)[:size])

    def dealt(self) -> Dealt:
        """Return who holds which rows, for a process that need not work it out again."""
        both = [rows for pair in self.partitions for rows in pair]
        return np.concatenate(both), np.array([len(rows) for rows in both])

    def take(self, dealt: Dealt) -> None:
        """Hold what another process has dealt."""
        rows, lengths = dealt
        both = np.split(rows.copy(), np.cumsum(lengths)[:-1])  # what came through Ray cannot be written to
        self.__dict__["partitions"] = list(zip(both[::2], both[1::2], strict=True))

    @cached_property
    def partitions(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Each node's rows of the training set, as (train, test)."""
        told, dataset = self.settings, self.dataset
        labels = self._labels("train")
        kept = np.setdiff1d(np.arange(len(labels)), self.validation_rows)
        if dataset.site is not None:
            raise UserError(
                "dataset=local has no partitions: its nodes have data of their own; start each with a site "
                "and its data, and without partition-id"
            )
        if told.num_nodes > len(kept):
            raise UserError(
                f"num_nodes={told.num_nodes} is more than the {len(kept)} training examples that "
                f"validation_size={told.validation_size} leaves: lower num_nodes"
            )
        owners = None if dataset.owners is None else dataset.owners[kept]
        given = self.partitioner(labels[kept], owners, told.num_nodes, told.seed)
        parts = checked(given, told.num_nodes, len(kept), type(self.partitioner).__name__)
        return self._split([kept[part] for part in parts], labels)

    def _labels(self, part: str) -> np.ndarray:
        """Return what the partitioner goes by; zeros where there is nothing, and it needs nothing."""
        labels, partitioner = self.dataset.labels_of(part), self.partitioner
        if labels is not None:
            return labels
        chooses = type(partitioner).test_rows is not Partitioner.test_rows
        if partitioner.needs_labels and (part == "train" or chooses):
            name = "labels" if part == "train" else "test_labels"
            raise UserError(
                f"partitioner {type(partitioner).__name__} goes by labels, and the data set's targets are "
                f"none: give the data set {name}, or choose a partitioner such as iid or by_writer"
            )
        return np.zeros(len(getattr(self.dataset, f"{part}_targets")), dtype=np.int64)

    def _split(self, parts: list[np.ndarray], labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Divide each node's rows into train and test; a row that several hold is for one or the other."""
        share = self.settings.node_test_fraction
        if not share:
            return [(np.sort(mine), mine[:0]) for mine in parts]
        draw = partial(generator, self.settings.seed, Purpose.NODE_SPLIT)
        held, holders = np.unique(np.concatenate(parts), return_counts=True)
        if (holders == 1).all():
            return [split_node(mine, labels, share, draw(partition_id=k)) for k, mine in enumerate(parts)]
        _, test = split_node(held, labels, share, draw())
        return [(np.setdiff1d(mine, test), np.intersect1d(mine, test)) for mine in parts]

    def examples(
        self, rows: np.ndarray, transform: Transform | None, *, augmented: bool = False
    ) -> Examples:
        """Return examples of the training set."""
        data, augment = self.dataset, self.dataset.augment if augmented else None
        return Examples(
            data.train_inputs,
            data.train_targets,
            torch.from_numpy(rows),
            transform,
            augment,
            self.settings.device_memory_share,
        )

    def own_test_examples(self, partition_id: int) -> Examples:
        """Return what the server evaluates a node's own model on."""
        differ = type(self.partitioner).own_test_rows is not Partitioner.own_test_rows
        if len(self.test_examples) == 0 or not differ:
            return self.test_examples
        if partition_id not in self._own:
            rows = self.partitioner.own_test_rows(self._labels("test"), partition_id)
            self._own[partition_id] = replace(self.test_examples, index=torch.from_numpy(rows))
        return self._own[partition_id]

    @cached_property
    def _own(self) -> dict[int, Examples]:
        return {}

    @cached_property
    def test_examples(self) -> Examples:
        """What the server evaluates on: the data set's own test set, or the partitioner's choice of it.

        Empty for ``central_test=none``, and where the sites have all data.
        """
        data, share = self.dataset, self.settings.device_memory_share
        if data.site is not None or self.settings.central_test == "none":
            index = torch.zeros(0, dtype=torch.int64)
        else:
            index = torch.from_numpy(self.partitioner.test_rows(self._labels("test")))
        return Examples(data.test_inputs, data.test_targets, index, data.transform, memory_share=share)
