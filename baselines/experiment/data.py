"""The data of an experiment, loaded once per process and checked against the configuration."""

from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor

from baselines.datasets import Dataset
from baselines.datasets.local import SiteData
from baselines.errors import DataError, UserError
from baselines.partitioners import Partitioner, checked, split_node
from clients import Classification, Examples, LazyRows
from clients.examples import tensors_of
from strategies.shared.seeding import Purpose, generator

from . import config
from .validation import Settings


def dataset_of(cfg: DictConfig) -> Dataset:
    """Return the data set that the configuration's group ``dataset`` describes.

    Raises
    ------
    UserError : where the inputs' shape, or the labels' classes, differ from the configuration's
    """
    try:
        dataset = load_dataset(OmegaConf.to_yaml(cfg, resolve=True))
    except OmegaConfBaseException as error:  # a value that has no default, or names another
        raise UserError(str(error)) from error
    stated, shape = cfg.shape, dataset.input_shape
    if stated is not None and shape != list(stated):
        raise UserError(
            f"dataset.shape={list(stated)}, but the inputs have shape {shape}: correct the data set's "
            "file in conf/dataset"
        )
    if dataset.site is not None:  # no rows here
        agreed = dataset.num_classes
        if None not in (cfg.num_classes, agreed) and cfg.num_classes < agreed:
            raise UserError(
                f"dataset.num_classes={cfg.num_classes}, but the schema has {agreed} classes: leave it out"
            )
        return dataset
    if not len(dataset.train_targets):
        raise UserError("the data set has no training examples: expected one for each node, or more")
    classes, highest = cfg.num_classes, dataset.train_targets.max()
    if isinstance(dataset.task, Classification) and classes is not None and highest >= classes:
        raise UserError(
            f"dataset.num_classes={classes}, but there are labels up to {int(highest)}: correct it"
        )
    return dataset


@cache
def load_dataset(yaml: str) -> Dataset:
    """Return the data set that a group's resolved YAML describes.

    Raises
    ------
    UserError : where its ``load`` does not return a ``Dataset``
    """
    node = OmegaConf.create({"dataset": OmegaConf.create(yaml)})  # so that a setting has its name in errors
    dataset = config.build(node.dataset.load)
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"dataset.load: {node.dataset.load._target_} returned a {type(dataset).__name__}: expected a "
            "Dataset of baselines.datasets"
        )
    return dataset


def check_rows(dataset: Dataset, *, is_tested: bool) -> None:
    """Refuse rows that no model can learn from or be evaluated on, in one pass over each floating-point
    tensor.

    Parameters
    ----------
    is_tested : whether the server evaluates on the test set

    Raises
    ------
    UserError : for NaN and infinite values, with their rows; no rows; labels of a single class
    """
    if dataset.site is not None:
        return
    if not len(dataset.train_targets):
        raise UserError("the data set has no training examples: expected one or more for each node")
    if is_tested and not len(dataset.test_targets):
        raise UserError(
            "the data set has no test examples: expected one or more, or central_test=none with "
            "node_test_fraction above 0"
        )
    for name in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
        for rows in tensors_of(getattr(dataset, name)):
            _check_finite(name, rows)
    if isinstance(dataset.task, Classification):
        _check_classes([y for y in (dataset.train_targets, dataset.test_targets) if len(y)])


def _check_finite(name: str, rows: Tensor | LazyRows) -> None:
    if isinstance(rows, LazyRows) or not rows.is_floating_point() or not rows.numel():
        return
    if all(end.isfinite() for end in rows.aminmax()):  # needs no extra memory, and propagates NaN
        return
    bad = (~rows.isfinite()).flatten(1).any(1) if rows.ndim > 1 else ~rows.isfinite()
    places = bad.nonzero().flatten().tolist()
    raise UserError(
        f"the data set's {name} have NaN or infinite values in {len(places)} rows, e.g. {places[:5]}, "
        "counted from 0: fill or remove them"
    )


def _check_classes(parts: list[Tensor]) -> None:
    lowest, highest = (min(int(y.min()) for y in parts), max(int(y.max()) for y in parts))
    if lowest == highest:
        raise UserError(
            f"the data set's labels are all {lowest}: expected two classes or more; are they the labels?"
        )


# NodeData: which node holds which rows of the data, for one seed.


PartitionArrays = tuple[
    np.ndarray, np.ndarray
]  # the rows of all nodes, and the lengths of each node's two lists


@dataclass(frozen=True)
class NodeData:
    """The rows of the training set that each node holds, and those that the server keeps.

    Parameters
    ----------
    settings : the number of nodes, and the shares for tests and validation
    dataset : the data set with these rows
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

    def partition_arrays(self) -> PartitionArrays:
        """Return which node holds which rows, to send to another process."""
        both = [rows for pair in self.partitions for rows in pair]
        return np.concatenate(both), np.array([len(rows) for rows in both])

    def set_partition(self, dealt: PartitionArrays) -> None:
        """Take over another process' partition."""
        rows, lengths = dealt
        both = np.split(rows.copy(), np.cumsum(lengths)[:-1])  # arrays from Ray are read-only
        self.__dict__["partitions"] = list(zip(both[::2], both[1::2], strict=True))

    @cached_property
    def partitions(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Each node's rows of the training set, as (train, test)."""
        settings, dataset = self.settings, self.dataset
        labels = self._labels("train")
        train_rows = np.setdiff1d(np.arange(len(labels)), self.validation_rows)
        if dataset.site is not None:
            raise UserError(
                "dataset=local has no partitions: its nodes have data of their own; start each with a site "
                "and its data, and without partition-id"
            )
        if settings.num_nodes > len(train_rows):
            raise UserError(
                f"num_nodes={settings.num_nodes} is more than the {len(train_rows)} training examples that "
                f"validation_size={settings.validation_size} leaves: lower num_nodes"
            )
        owners = None if dataset.owners is None else dataset.owners[train_rows]
        positions = self.partitioner(labels[train_rows], owners, settings.num_nodes, settings.seed)
        parts = checked(positions, settings.num_nodes, len(train_rows), type(self.partitioner).__name__)
        return self._split([train_rows[part] for part in parts], labels)

    def _labels(self, part: str) -> np.ndarray:
        """Return the labels for the partitioner; zeros if there are none and it needs none."""
        labels, partitioner = self.dataset.labels_of(part), self.partitioner
        if labels is not None:
            return labels
        chooses = type(partitioner).test_rows is not Partitioner.test_rows
        if partitioner.needs_labels and (part == "train" or chooses):
            name = "labels" if part == "train" else "test_labels"
            raise UserError(
                f"partitioner {type(partitioner).__name__} splits by labels, but the data set's targets are "
                f"none: give the data set {name}, or choose a partitioner such as iid or by_writer"
            )
        return np.zeros(len(getattr(self.dataset, f"{part}_targets")), dtype=np.int64)

    def _split(self, parts: list[np.ndarray], labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Divide each node's rows into train and test; a shared row is in the same part for all nodes."""
        share = self.settings.node_test_fraction
        if not share:
            return [(np.sort(mine), mine[:0]) for mine in parts]
        draw = partial(generator, self.settings.seed, Purpose.NODE_SPLIT)
        held, holders = np.unique(np.concatenate(parts), return_counts=True)
        if (holders == 1).all():
            return [split_node(mine, labels, share, draw(partition_id=k)) for k, mine in enumerate(parts)]
        _, test = split_node(held, labels, share, draw())
        return [(np.setdiff1d(mine, test), np.intersect1d(mine, test)) for mine in parts]

    def examples(self, rows: np.ndarray, partition_id: int, *, augmented: bool = False) -> Examples:
        """Return examples of the training set, as a node sees them."""
        data, augment = self.dataset, self.dataset.augment if augmented else None
        transform = data.transform if data.node_transform is None else data.node_transform(partition_id)
        return Examples(
            data.train_inputs,
            data.train_targets,
            torch.from_numpy(rows),
            transform,
            augment,
            self.settings.device_memory_share,
        )

    def own_test_examples(self, partition_id: int) -> Examples:
        """Return the examples on which the server evaluates a node's own model."""
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
        """The server's test examples: the data set's test set, or the partitioner's choice from it.

        Empty for ``central_test=none``, and where the sites have all data.
        """
        data, share = self.dataset, self.settings.device_memory_share
        if data.site is not None or self.settings.central_test == "none":
            index = torch.zeros(0, dtype=torch.int64)
        else:
            index = torch.from_numpy(self.partitioner.test_rows(self._labels("test")))
        return Examples(data.test_inputs, data.test_targets, index, data.transform, memory_share=share)


# A site: the examples that a node with its own data trains on, and those held out for evaluation.


START_ADVICE = 'start its node with --node-config \'site="north" data="/path"\''


def site_examples(
    dataset: Dataset, settings: Settings, name: str, path: str, prepared: Path | None = None
) -> tuple[Examples, Examples]:
    """Return a site's examples for training, and those held out.

    ``prepared`` is the folder for prepared data; None for the data set's own. The held-out examples
    depend on the seed and the site's name, not on the other sites.

    Raises
    ------
    DataError : where the site has no name or no data, or data that do not fit the schema
    """
    if dataset.site is None:
        raise DataError(
            "the experiment has a data set of its own, and this node no partition-id: give it one, or "
            "choose dataset=local",
            "data: the experiment has a data set of its own, and the node no partition",
        )
    if not name or not path:
        missing = "data" if name else "name"
        raise DataError(f"the site has no {missing}: {START_ADVICE}", f"data: the node has no {missing}")
    reader = dataset.site
    if prepared is not None and isinstance(reader, SiteData):
        reader = replace(reader, cache=prepared, has_fallback=False)
    arrays = reader(Path(path))
    inputs, targets = arrays["inputs"], arrays["targets"]
    number = int.from_bytes(sha256(name.encode()).digest()[:4])
    rows = torch.arange(len(targets))
    test = rows[:0]
    if settings.node_test_fraction:
        draw = generator(settings.seed, Purpose.NODE_SPLIT, partition_id=number)
        parts = split_node(rows.numpy(), targets.numpy(), settings.node_test_fraction, draw)
        rows, test = map(torch.from_numpy, parts)
    share = settings.device_memory_share
    return (
        Examples(inputs, targets, rows, dataset.transform, dataset.augment, share),
        Examples(inputs, targets, test, dataset.transform, memory_share=share),
    )
