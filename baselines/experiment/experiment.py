"""The composition root: every object of an experiment, built from its configuration.

``cfg`` stays in this folder; what is built takes plain arguments.
"""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord
from torch import nn

from baselines.datasets import Dataset
from baselines.errors import UserError
from baselines.partitioners import Partitioner
from clients import Examples, LocalTraining, Node
from clients.correction import Correction
from clients.frozen import Frozen
from strategies.round.evaluation import SuiteStrategy
from strategies.shared import protocol

from . import config, modules, precision
from .data import dataset_of
from .described import Described
from .device import device_of
from .foreign import strategy_of
from .holdings import Holdings
from .model import model_of
from .site import site_examples
from .source import source_hash

NO_VALIDATION = (
    "needs validation examples on the server, and validation_size=0: set how many training examples to "
    "set aside, e.g. validation_size=300"
)


@dataclass(frozen=True)
class Experiment(Described):
    """One seed of one setting.

    Parameters
    ----------
    overrides : what names it, as one shell-quoted string
    data : a data set in the place of the configured one
    """

    data: Dataset | None = field(default=None, compare=False, repr=False)

    @cached_property
    def dataset(self) -> Dataset:
        """The data set, loaded once per process."""
        return dataset_of(self.cfg.dataset) if self.data is None else self.data

    @cached_property
    def partitioner(self) -> Partitioner:
        """How the training set is distributed over the nodes."""
        partitioner: Partitioner = config.build(self.cfg.partitioner)
        return partitioner

    @cached_property
    def holdings(self) -> Holdings:
        """Who holds which rows of the data."""
        return Holdings(self.settings, self.dataset, self.partitioner)

    @property
    def partitions(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Each node's rows of the training set, as (train, test)."""
        return self.holdings.partitions

    @property
    def num_classes(self) -> int | None:
        """How many classes there are; None where the targets are no labels."""
        return self.cfg.dataset.num_classes or self.dataset.num_classes

    @property
    def input_shape(self) -> Any:
        """The shape of one input as a list; of several a tuple or a dict of such."""
        return list(self.cfg.dataset.shape) if self.cfg.dataset.shape else self.dataset.input_shape

    def model(self, partition_id: int | None = None) -> nn.Module:
        """Return a fresh model: the same initial parameters for the same seed, or seed and partition."""
        return model_of(self.cfg, lambda: self.dataset, partition_id)

    @property
    def device(self) -> torch.device:
        """Where models train and are evaluated."""
        return device_of(self.cfg.device)

    def initial_arrays(self) -> ArrayRecord:
        """Return the model before training, as the server sends it."""
        return ArrayRecord(self.model().state_dict())

    def strategy(self) -> SuiteStrategy:
        """Return a fresh strategy, ready to run.

        Raises
        ------
        UserError, ValueError : when it needs validation examples, or more rounds, than there are
        """
        strategy = strategy_of(self.cfg)
        strategy.freeze(self.frozen.arrays if self.frozen else ())
        strategy.fail_within(self.settings.rounds)  # a run without any step has failed, if short
        if strategy.needs_validation and not self.settings.validation_size:
            raise UserError(f"{strategy.name} {NO_VALIDATION}")
        return strategy

    @cached_property
    def prototype(self) -> SuiteStrategy:
        """The strategy, to be asked what it needs; a run takes a fresh one."""
        return self.strategy()

    @property
    def nodes_remember(self) -> bool:
        """Whether the nodes keep anything from round to round."""
        asked = Correction.asked(self.prototype.asks())
        return (
            self.prototype.nodes_remember
            or self.training.remembers
            or any(kind.remembers for kind in asked)
        )

    def train_config(self) -> ConfigRecord:
        """Return what the nodes are told besides the round: which code the server runs."""
        return ConfigRecord({protocol.SOURCE_HASH: source_hash()})

    @cached_property
    def training(self) -> LocalTraining:
        """How a node trains."""
        modules.import_all(self.cfg.strategy)  # with them come the corrections that its messages ask for
        training: LocalTraining = config.build(self.cfg.client)
        return training

    @cached_property
    def node_model(self) -> nn.Module:
        """The model that this process' nodes share; every message overwrites it."""
        return self.model()

    @cached_property
    def frozen(self) -> Frozen | None:
        """What nobody trains of the initial model; None where all is trained."""
        return Frozen.of(self.node_model)

    @cached_property
    def deterministic(self) -> bool:
        """Whether torch may use algorithms alone that give the same bytes every time."""
        return precision.yes_or_no("deterministic", self.cfg.deterministic)

    @cached_property
    def _nodes(self) -> dict[int, Node]:
        return {}

    def node(self, partition_id: int) -> Node:
        """Return the node that holds a partition, built when it is first asked for.

        Raises
        ------
        UserError : for a partition that there is none of
        """
        if not 0 <= partition_id < self.settings.num_nodes:
            last = self.settings.num_nodes - 1
            raise UserError(f"partition-id={partition_id} is out of range: expected 0 to {last}")
        if partition_id not in self._nodes:
            self._nodes[partition_id] = self._node(partition_id)
        return self._nodes[partition_id]

    def site(self, name: str, path: str, prepared: Path | None = None) -> Node:
        """Return the node of a site with data of its own, built when it is first asked for.

        ``prepared`` is the folder for prepared data, in the place of the configured one.

        Raises
        ------
        UserError : where the site has no name or no data, or data that do not fit the schema
        """
        if (name, path) not in self._sites:
            found = site_examples(self.dataset, self.settings, name, path, prepared)
            self._sites[name, path] = Node(
                self.node_model,
                self.training,
                self.dataset.task,
                *found,
                self.settings.seed,
                frozen=self.frozen,
            )
        return self._sites[name, path]

    @cached_property
    def _sites(self) -> dict[tuple[str, str], Node]:
        return {}

    def _node(self, partition_id: int) -> Node:
        (train, test), transform = self.partitions[partition_id], self.dataset.seen_by(partition_id)
        return Node(
            self.node_model,
            self.training,
            self.dataset.task,
            self.holdings.examples(train, transform, augmented=True),
            self.holdings.examples(test, transform),
            self.settings.seed,
            partial(self.model, partition_id),
            self.frozen,
        )

    @property
    def test_examples(self) -> Examples:
        """What the server evaluates on."""
        return self.holdings.test_examples

    @property
    def validation_examples(self) -> Examples:
        """What the server sets aside, seen as by node 0: ``transform`` may show what is the test set's."""
        return self.holdings.examples(self.holdings.validation_rows, self.dataset.seen_by(0))


@lru_cache(maxsize=4)
def load(overrides: str) -> Experiment:
    """Return the experiment of an override string, built once per process."""
    return Experiment(overrides)
