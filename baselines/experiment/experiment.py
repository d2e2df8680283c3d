"""The composition root: every object of an experiment, built from its configuration.

``cfg`` is used only in this folder; the objects built take plain arguments.
"""

import shlex
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import Strategy
from omegaconf import DictConfig, OmegaConf
from torch import nn

from baselines.datasets import Dataset
from baselines.errors import UserError
from baselines.partitioners import Partitioner
from clients import Examples, LocalTraining, Node
from clients.correction import Correction
from clients.frozen import Frozen
from clients.round import BUILT_IN, requested_corrections
from strategies.core.clock import VirtualClock
from strategies.core.strategy import BaseStrategy
from strategies.shared import protocol
from strategies.shared.checks import require_count
from strategies.shared.codecs import COMPRESSIONS
from strategies.shared.compression import Compression
from strategies.shared.seeding import Purpose, torch_seed

from . import config
from .config import (
    choices,
    has_lazy_modules,
    leaves,
    materialize_lazy,
    own_compressions,
    own_corrections,
    targets,
)
from .data import NodeData, dataset_of, load_dataset, site_examples
from .device import device_of, place_model, prepare_model, require_bool
from .flower_adapter import FlowerStrategyAdapter
from .identity import forget_changed, hash_own_files, hash_own_sources, hash_setting, identity, source_hash
from .overrides import quote, resolve_override
from .validation import Settings, takes_argument

# ExperimentSpec: what the configuration says of an experiment, before anything is built.


@dataclass(frozen=True)
class ExperimentSpec:
    """What an override string alone says of an experiment."""

    overrides: str

    @cached_property
    def cfg(self) -> DictConfig:
        """The composed configuration."""
        return config.load(self.overrides)

    @cached_property
    def settings(self) -> Settings:
        """The run's settings besides its parts."""
        return Settings.of(self.cfg)

    def runtime(self) -> Any:
        """Return the runtime, which has a method ``run(overrides, num_nodes, folder)``."""
        return config.build(self.cfg.runtime)

    def loggers(self) -> list[Any]:
        """Return the loggers, which take the metrics besides metrics.csv."""
        return list(config.build(self.cfg.get("logger") or {}).values())

    def identity(self, rounds: int | None = None, like: object = None) -> str:
        """Return the run's identity; with ``rounds``, that of a run of this length.

        ``like`` as in :func:`~baselines.experiment.identity.identity`.
        """
        return identity(self.cfg, rounds, like)

    @property
    def setting(self) -> str:
        """A hash that is the same for all seeds."""
        return hash_setting(self.cfg)

    @property
    def files(self) -> dict[str, str]:
        """A hash of each file and folder of the user's own that the experiment names, by its path."""
        return hash_own_files(self.cfg)

    @property
    def own_sources(self) -> dict[str, str]:
        """A hash of each package of the user's own that the experiment names."""
        return hash_own_sources(targets(self.cfg))

    @property
    def kind_of_data(self) -> str:
        """What decides the data set, as a text in which its seed and folder are references."""
        return str(self.cfg.dataset)

    def configuration(self) -> str:
        """Return the resolved configuration as YAML."""
        return OmegaConf.to_yaml(self.cfg, resolve=True)

    def flat_configuration(self) -> dict[str, str]:
        """Return the resolved configuration as {dotted key: text}."""
        settings = leaves(OmegaConf.to_container(self.cfg, resolve=True))
        return {key: str(value) for key, value in settings.items()}

    def hyperparameters(self) -> dict[str, object]:
        """Return the option of each group and each value by its dotted key; a list is a text."""
        parameters: dict[str, object] = {
            group: option for group, option in self.choices.items() if group != "logger"
        }
        for key, value in leaves(OmegaConf.to_container(self.cfg, resolve=True)).items():
            if not key.startswith("logger.") and not key.endswith("._partial_"):
                parameters[key] = value if type(value) in (bool, int, float, str) else str(value)
        return parameters

    def without_references(self) -> str:
        """Return the override string with references to other values resolved."""
        return shlex.join(resolve_override(override, self.cfg) for override in shlex.split(self.overrides))

    @property
    def data_source(self) -> str:
        """The name of the function or class that loads the data set."""
        return str(self.cfg.dataset.load._target_)

    @property
    def replaces_strategy(self) -> bool:
        """Whether the strategy is of another class than its option says."""
        plain = config.compose_unchecked(f"strategy={self.choices['strategy']}").cfg
        return bool(self.cfg.strategy._target_ != plain.strategy._target_)

    @property
    def threads(self) -> int:
        """How many threads torch uses; equal results bit for bit need equal threads."""
        return int(self.cfg.threads)

    @property
    def model_settings(self) -> dict[str, Any]:
        """The model's resolved configuration, as plain values: its class is ``_target_``."""
        settings: Any = OmegaConf.to_container(self.cfg.model, resolve=True)
        return dict(settings)

    @property
    def choices(self) -> dict[str, str]:
        """The chosen option of each group."""
        return choices(self.overrides)


# The model of an experiment, on the device that it computes on.


def model_of(cfg: DictConfig, dataset: Callable[[], Dataset], partition_id: int | None = None) -> nn.Module:
    """Return a fresh model on its device: the same initial parameters for the same seed.

    With ``partition_id``, the model that this node initialises for itself.

    The data set is load_dataset only if the configuration leaves the shape or the classes to it and the model
    takes them, or if modules are lazy and learn their shapes from it. A value set for the model is kept.
    """
    measured: dict[str, object] = {}  # what the configuration leaves open
    takes = partial(takes_argument, str(cfg.model.get("_target_")))
    if cfg.dataset.shape is None and cfg.model.get("input_shape") is None and takes("input_shape"):
        measured["input_shape"] = dataset().input_shape
    if cfg.dataset.num_classes is None and cfg.model.get("num_classes") is None and takes("num_classes"):
        measured["num_classes"] = dataset().num_classes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_seed(cfg.seed, partition_id))
        with warnings.catch_warnings():  # a model without classes is refused in one line
            warnings.filterwarnings("ignore", "Initializing zero-element tensors", UserWarning)
            warnings.filterwarnings("ignore", "Lazy modules are a new feature", UserWarning)
            model: nn.Module = config.build(cfg.model, **measured)
        if has_lazy_modules(model):
            materialize_lazy(model, dataset())
    device = device_of(cfg.device)
    return prepare_model(place_model(model, device), device, cfg.autocast, cfg.channels_last)


def _seed(seed: int, partition_id: int | None) -> int:
    """Return the seed of the initial parameters, for the server's model or a node's own."""
    if partition_id is None:
        return torch_seed(seed, Purpose.INITIAL_MODEL)
    return torch_seed(seed, Purpose.NODE_MODEL, partition_id=partition_id)


# The strategy of an experiment.


PARTS = ("weighting", "aggregation", "mask", "step_size", "server_optimizer", "privacy", "compression")
SUITE_SETTINGS = (*PARTS, "nodes_per_round", "min_replies", "participation")
GROUPS_OF_SOME = {  # groups that only some strategies take: what the others lack, and which take them
    "grouping": ("makes no groups", "selective"),
    "staleness": ("has no stale updates", "fedbuff or fedasync"),
}
SHARED_SETTINGS = (
    "seed",
    "num_nodes",
    "max_failed_rounds",
    "node_timeout",
)  # checked if the strategy has them


def strategy_of(cfg: DictConfig) -> BaseStrategy:
    """Return the strategy of a configuration, wrapped where it is not one of this suite.

    Raises
    ------
    UserError : for one of this suite whose file leaves out a changed setting
    """
    strategy: Strategy = config.build(config.without_corrections(cfg).strategy)
    if isinstance(strategy, BaseStrategy):
        own = (key for key in SHARED_SETTINGS if hasattr(strategy, key))
        unread = _unread(cfg, (*SUITE_SETTINGS, *own))
        for group, (fact, ways) in GROUPS_OF_SOME.items():
            if not hasattr(strategy, group) and (changed := _name_changed(cfg, group)):
                raise UserError(
                    f"{changed}: strategy={strategy.name} {fact}; leave it out, or choose strategy={ways}"
                )
        if lost := [key for key in unread if key not in cfg.strategy]:  # a value in the file is intended
            fault = f"strategy {strategy.name} is not given {', '.join(lost)}"
            raise UserError(f"{fault}: begin its file with defaults: [base]")
        return strategy
    try:
        require_count("max_failed_rounds", cfg.max_failed_rounds)
    except ValueError as error:
        raise UserError(str(error)) from error
    return FlowerStrategyAdapter(
        strategy,
        cfg.num_nodes,
        cfg.max_failed_rounds,
        _unread(cfg, (*SUITE_SETTINGS, *GROUPS_OF_SOME)),
        cfg.seed,
    )


def _name_changed(cfg: DictConfig, group: str) -> str:
    """Return a group's chosen option, or the first changed setting of its default; empty if unchanged."""
    defaults = config.leaves(OmegaConf.to_container(config.load("")[group]))
    settings = config.leaves(OmegaConf.to_container(cfg[group], resolve=True))
    changed = [key for key, value in settings.items() if key not in defaults or defaults[key] != value]
    if "_target_" in changed:
        return f"{group}={settings['_target_'].rpartition('.')[2]}"
    return f"{group}.{changed[0]}={settings[changed[0]]}" if changed else ""


def _unread(cfg: DictConfig, keys: Iterable[str]) -> list[str]:
    """Return the changed settings that the strategy's file does not refer to."""
    read = OmegaConf.to_yaml(cfg.strategy, resolve=False)
    return [key for key in keys if f"${{{key}" not in read and cfg[key] != config.load("")[key]]


VALIDATION_ERROR = (
    "needs validation examples on the server, and validation_size=0: set how many training examples to "
    "set aside, e.g. validation_size=300"
)


@dataclass(frozen=True)
class Experiment(ExperimentSpec):
    """One seed of one setting.

    Parameters
    ----------
    overrides : the overrides, as one shell-quoted string
    data : a data set instead of the configured one
    """

    data: Dataset | None = field(default=None, compare=False, repr=False)

    @cached_property
    def dataset(self) -> Dataset:
        """The data set, load_dataset once per process."""
        return dataset_of(self.cfg.dataset) if self.data is None else self.data

    @cached_property
    def partitioner(self) -> Partitioner:
        """How the training set is distributed over the nodes."""
        partitioner: Partitioner = config.build(self.cfg.partitioner)
        return partitioner

    @cached_property
    def node_data(self) -> NodeData:
        """Which node holds which rows of the data."""
        return NodeData(self.settings, self.dataset, self.partitioner)

    @property
    def partitions(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Each node's rows of the training set, as (train, test)."""
        return self.node_data.partitions

    @property
    def num_classes(self) -> int | None:
        """How many classes there are; None if the targets are not labels."""
        return self.cfg.dataset.num_classes or self.dataset.num_classes

    @property
    def input_shape(self) -> Any:
        """The shape of one input as a list; for several inputs, a tuple or dict of lists."""
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

    def strategy(self) -> BaseStrategy:
        """Return a fresh strategy, ready to run.

        Raises
        ------
        UserError, ValueError : when it needs validation examples that are not set aside, or more rounds
        """
        strategy = strategy_of(self.cfg)
        strategy.freeze(self.frozen.arrays if self.frozen else ())
        strategy.set_num_rounds(self.settings.rounds)  # even a short run without any step fails
        has_data = bool(self.settings.validation_size or self.settings.server_inputs)
        if strategy.needs_server_data and not has_data:
            raise UserError(f"{strategy.name} {VALIDATION_ERROR}")
        return strategy

    @cached_property
    def prototype(self) -> BaseStrategy:
        """A strategy to query for its needs; a run uses a fresh one."""
        return self.strategy()

    @cached_property
    def clock(self) -> VirtualClock | None:
        """How long nodes take, in virtual seconds; None without a clock."""
        return config.build(self.cfg.clock) if "clock" in self.cfg else None

    @property
    def has_stateful_nodes(self) -> bool:
        """Whether the nodes keep state between rounds."""
        corrections = requested_corrections(self.prototype.train_config(), self.known_corrections)
        return (
            self.prototype.has_stateful_nodes
            or self.training.remembers
            or any(kind.remembers for kind in corrections)
        )

    def train_config(self) -> ConfigRecord:
        """Return what is sent to nodes besides the round: the hash of the server's code."""
        return ConfigRecord({protocol.SOURCE_HASH: source_hash()})

    @cached_property
    def known_corrections(self) -> tuple[type[Correction], ...]:
        """The corrections that a message may request; those in the strategy's file come last."""
        return (*BUILT_IN, *own_corrections(self.cfg))

    @cached_property
    def known_compressions(self) -> tuple[type[Compression], ...]:
        """The compressions that a message may request."""
        return (*COMPRESSIONS, *own_compressions(self.cfg))

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
    def frozen(self) -> Frozen | None:
        """The untrained part of the initial model; None if all of it is trained."""
        return Frozen.of(self.node_model)

    @cached_property
    def deterministic(self) -> bool:
        """Whether torch must use deterministic algorithms."""
        return require_bool("deterministic", self.cfg.deterministic)

    @cached_property
    def _nodes(self) -> dict[int, Node]:
        return {}

    def node(self, partition_id: int) -> Node:
        """Return the node that holds a partition, built when it is first asked for.

        Raises
        ------
        UserError : if the partition does not exist
        """
        if not 0 <= partition_id < self.settings.num_nodes:
            last = self.settings.num_nodes - 1
            raise UserError(f"partition-id={partition_id} is out of range: expected 0 to {last}")
        if partition_id not in self._nodes:
            self._nodes[partition_id] = self._node(partition_id)
        return self._nodes[partition_id]

    def site(self, name: str, path: str, prepared: Path | None = None) -> Node:
        """Return the node of a site with data of its own, built when it is first asked for.

        ``prepared`` is the folder for prepared data, instead of the configured one.

        Raises
        ------
        UserError : where the site has no name or no data, or data that do not fit the schema
        """
        if (name, path) not in self._sites:
            examples = site_examples(self.dataset, self.settings, name, path, prepared)
            self._sites[name, path] = Node(
                self.node_model,
                self.training,
                self.dataset.task,
                *examples,
                self.settings.seed,
                frozen=self.frozen,
                known_corrections=self.known_corrections,
                known_compressions=self.known_compressions,
            )
        return self._sites[name, path]

    @cached_property
    def _sites(self) -> dict[tuple[str, str], Node]:
        return {}

    def _node(self, partition_id: int) -> Node:
        train, test = self.partitions[partition_id]
        return Node(
            self.node_model,
            self.training,
            self.dataset.task,
            self.node_data.examples(train, partition_id, augmented=True),
            self.node_data.examples(test, partition_id),
            self.settings.seed,
            partial(self.model, partition_id),
            self.frozen,
            self.known_corrections,
            self.known_compressions,
        )

    @property
    def test_examples(self) -> Examples:
        """The server's test examples."""
        return self.node_data.test_examples

    @property
    def validation_examples(self) -> Examples:
        """The examples set aside, transformed as node 0's: ``transform`` may be the test set's own."""
        return self.node_data.examples(self.node_data.validation_rows, 0)

    @cached_property
    def server_inputs(self) -> Examples:
        """The examples on which the server distils: those set aside, or another data set's training set.

        Raises
        ------
        UserError : for a data set whose inputs have another shape, or lie at the sites
        """
        name = self.settings.server_inputs
        if name is None:
            return self.validation_examples
        folders = [one for one in shlex.split(self.overrides) if one.startswith("hydra.searchpath=")]
        arguments = [f"dataset={name}", f"data_root={quote(self.cfg.data_root)}", f"seed={self.cfg.seed}"]
        data = dataset_of(config.load(shlex.join([*folders, *arguments])).dataset)
        if data.site is not None or data.input_shape != self.input_shape:
            fault = "lie at the sites" if data.site is not None else f"have shape {data.input_shape}"
            raise UserError(
                f"server_inputs={name}: its inputs {fault}, expected some of shape {self.input_shape} here; "
                "choose another data set"
            )
        rows = np.arange(len(data.train_targets))
        return NodeData(self.settings, data, self.partitioner).examples(rows, 0)


@lru_cache(maxsize=4)
def load(overrides: str) -> Experiment:
    """Return the experiment of an override string, built once per process."""
    return Experiment(overrides)


def load_anew(overrides: str) -> Experiment:
    """Return the experiment of a run that begins: built anew where a file that this process read has changed."""
    if forget_changed():
        load.cache_clear()
        load_dataset.cache_clear()
    return load(overrides)
