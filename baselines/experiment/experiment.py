"""The composition root: every object of an experiment, built from its configuration.

``cfg`` goes no further than this file; what it builds takes plain arguments.
"""

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import Strategy
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor, nn

from baselines.datasets import Dataset
from baselines.errors import UserError
from baselines.partitioners import Partitioner, split_node
from clients import Classification, Examples, LocalTraining, Node
from clients.app import load as load_model
from clients.augment import Augmentation
from clients.evaluation import correct
from clients.examples import Transform
from strategies.round.evaluation import SuiteStrategy
from strategies.shared import protocol
from strategies.shared.seeding import Purpose, generator, torch_seed

from . import config, precision
from .foreign import Foreign

NO_VALIDATION = (
    "strategy=selective groups the nodes by what they get right on validation examples, and "
    "validation_size=0: set how many training examples to set aside, e.g. validation_size=300"
)
OF_OURS = ("weighting", "mask", "step_size", "server_optimizer", "nodes_per_round", "min_replies")


@dataclass(frozen=True)
class Experiment:
    """One seed of one setting, as named by an override string."""

    overrides: str

    @cached_property
    def cfg(self) -> DictConfig:
        """The composed configuration."""
        return config.load(self.overrides)

    @cached_property
    def dataset(self) -> Dataset:
        """The data set, loaded once per process."""
        try:
            dataset = _dataset(OmegaConf.to_yaml(self.cfg.dataset, resolve=True))
        except OmegaConfBaseException as error:  # a value that has no default, or names another
            raise UserError(str(error)) from error
        said, shape = self.cfg.dataset.shape, list(dataset.train_inputs.shape[1:])
        if said is not None and shape != list(said):
            raise UserError(
                f"dataset.shape={list(said)}, but the inputs have shape {shape}: correct the data set's "
                "file in conf/dataset"
            )
        classes, highest = self.cfg.dataset.num_classes, dataset.train_targets.max()
        if isinstance(dataset.task, Classification) and classes is not None and highest >= classes:
            raise UserError(
                f"dataset.num_classes={classes}, but there are labels up to {int(highest)}: correct it"
            )
        return dataset

    @cached_property
    def partitioner(self) -> Partitioner:
        """How the training set is distributed over the nodes."""
        partitioner: Partitioner = config.build(self.cfg.partitioner)
        return partitioner

    @cached_property
    def validation_rows(self) -> np.ndarray:
        """The rows of the training set that no node holds: the server's validation set."""
        size, total = self.cfg.validation_size, len(self.dataset.train_targets)
        if not isinstance(size, int) or not 0 <= size < total:
            raise UserError(
                f"validation_size={size} is out of range: expected 0 or more, below {total} examples"
            )
        return np.sort(generator(self.cfg.seed, Purpose.VALIDATION).permutation(total)[:size])

    @cached_property
    def partitions(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Each node's rows of the training set, as (train, test)."""
        cfg, dataset = self.cfg, self.dataset
        labels = dataset.train_targets.flatten().numpy()
        kept = np.setdiff1d(np.arange(len(labels)), self.validation_rows)
        if cfg.num_nodes > len(kept):
            raise UserError(
                f"num_nodes={cfg.num_nodes} is more than the {len(kept)} training examples that "
                f"validation_size={cfg.validation_size} leaves: lower num_nodes"
            )
        owners = None if dataset.owners is None else dataset.owners[kept]
        num_nodes, seed, fraction = cfg.num_nodes, cfg.seed, cfg.node_test_fraction
        rows = [kept[part] for part in self.partitioner(labels[kept], owners, num_nodes, seed)]
        if not fraction:
            return [(np.sort(mine), mine[:0]) for mine in rows]
        return [
            split_node(
                mine, labels, fraction, generator(seed, Purpose.NODE_SPLIT, partition_id=partition_id)
            )
            for partition_id, mine in enumerate(rows)
        ]

    def model(self) -> nn.Module:
        """Return a fresh model: the same initial parameters for the same seed."""
        measured: dict[str, object] = {}  # what the configuration leaves to the data
        if self.cfg.dataset.shape is None:
            measured["input_shape"] = list(self.dataset.train_inputs.shape[1:])
        if self.cfg.dataset.num_classes is None:
            measured["num_classes"] = self.dataset.num_classes
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(self.cfg.seed, Purpose.INITIAL_MODEL))
            model: nn.Module = config.build(self.cfg.model, **measured)
        model = model.to(self.device)
        return precision.prepared(model, self.device, self.cfg.autocast, self.cfg.channels_last)

    @property
    def device(self) -> torch.device:
        """Where models train and are evaluated."""
        name = self.cfg.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:  # no such device, or torch built without it
            raise UserError(f"device={name} is not to be had here: expected cpu, cuda or auto") from error

    def initial_arrays(self) -> ArrayRecord:
        """Return the model before training, as the server sends it."""
        return ArrayRecord(self.model().state_dict())

    def strategy(self) -> SuiteStrategy:
        """Return a fresh strategy, ready to run.

        Raises
        ------
        UserError : when it needs validation examples and there are none
        """
        built: Strategy = config.build(self.cfg.strategy)
        strategy = built if isinstance(built, SuiteStrategy) else self._wrapped(built)
        strategy.fail_within(self.cfg.rounds)  # a run without any step has failed, if short
        if strategy.needs_validation:
            if not len(self.validation_rows):
                raise UserError(NO_VALIDATION)
            strategy.validate_with(self.right_on)
        return strategy

    def _wrapped(self, strategy: Strategy) -> Foreign:
        """Return a strategy of another kind, with the changed settings that it does not read."""
        read = OmegaConf.to_yaml(self.cfg.strategy, resolve=False)
        changed = [key for key in OF_OURS if self.cfg[key] != config.load("")[key]]
        unread = [key for key in changed if f"${{{key}" not in read]
        return Foreign(strategy, self.cfg.num_nodes, self.cfg.max_failed_rounds, unread)

    @cached_property
    def prototype(self) -> SuiteStrategy:
        """The strategy, to be asked what it needs; a run takes a fresh one."""
        return self.strategy()

    @property
    def nodes_remember(self) -> bool:
        """Whether the nodes keep anything from round to round."""
        return self.prototype.nodes_remember or self.training.keep_optimizer

    def right_on(self, arrays: ArrayRecord) -> Tensor:
        """Return for each validation example whether a model classifies it rightly, [V] of bools."""
        load_model(self.node_model, arrays)
        examples = self._examples(self.validation_rows, self.dataset.transform)
        return correct(self.node_model, examples)

    def train_config(self) -> ConfigRecord:
        """Return what the nodes are told besides the round: which code the server runs."""
        return ConfigRecord({protocol.SOURCE_HASH: config.source_hash()})

    @cached_property
    def training(self) -> LocalTraining:
        """How a node trains."""
        training: LocalTraining = config.build(self.cfg.client)
        return training

    @cached_property
    def node_model(self) -> nn.Module:
        """The model that this process' nodes share; every message overwrites it."""
        return self.model()

    @cached_property
    def threads(self) -> int:
        """How many threads torch uses in each process."""
        return int(self.cfg.threads)

    @property
    def deterministic(self) -> bool:
        """Whether torch may use algorithms alone that give the same bytes every time."""
        return precision.yes_or_no("deterministic", self.cfg.deterministic)

    @cached_property
    def _nodes(self) -> dict[int, Node]:
        return {}

    def node(self, partition_id: int) -> Node:
        """Return the node that holds a partition, built when it is first asked for."""
        if partition_id not in self._nodes:
            self._nodes[partition_id] = self._node(partition_id)
        return self._nodes[partition_id]

    def _node(self, partition_id: int) -> Node:
        train, test = self.partitions[partition_id]
        data = self.dataset
        transform = data.node_transform(partition_id) if data.node_transform else data.transform
        return Node(
            self.node_model,
            self.training,
            self.dataset.task,
            self._examples(train, transform, data.augment),
            self._examples(test, transform),
            self.cfg.seed,
        )

    @cached_property
    def test_examples(self) -> Examples:
        """What the server evaluates on: the data set's own test set, or the partitioner's choice of it."""
        data = self.dataset
        index = torch.from_numpy(self.partitioner.test_rows(data.test_targets.flatten().numpy()))
        return Examples(data.test_inputs, data.test_targets, index, data.transform)

    def _examples(
        self, rows: np.ndarray, transform: Transform | None, augment: Augmentation | None = None
    ) -> Examples:
        data = self.dataset
        return Examples(data.train_inputs, data.train_targets, torch.from_numpy(rows), transform, augment)


@lru_cache(maxsize=4)
def load(overrides: str) -> Experiment:
    """Return the experiment of an override string, built once per process."""
    return Experiment(overrides)


@cache
def _dataset(yaml: str) -> Dataset:
    node = OmegaConf.create({"dataset": OmegaConf.create(yaml)})  # so that a setting has its name in errors
    dataset: Dataset = config.build(node.dataset.load)
    return dataset
