"""Described: an experiment as its configuration tells it, before anything is built."""

import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from omegaconf import DictConfig, OmegaConf

from . import config
from .choices import choices, leaves
from .identity import identity, setting
from .modules import targets
from .overrides import resolved
from .settings import Settings
from .source import own_sources


@dataclass(frozen=True)
class Described:
    """What is known of an experiment by its override string alone."""

    overrides: str

    @cached_property
    def cfg(self) -> DictConfig:
        """The composed configuration."""
        return config.load(self.overrides)

    @cached_property
    def settings(self) -> Settings:
        """What a run is told besides its parts."""
        return Settings.of(self.cfg)

    def runtime(self) -> Any:
        """Return what launches the nodes, with a method ``run(overrides, num_nodes, folder)``."""
        return config.build(self.cfg.runtime)

    def loggers(self) -> list[Any]:
        """Return what else takes the metrics, besides metrics.csv."""
        return list(config.build(self.cfg.get("logger") or {}).values())

    def identity(self, rounds: int | None = None, like: object = None) -> str:
        """Return the hash of what decides the run's numbers; with ``rounds``, of one of so many rounds.

        ``like`` are settings whose way to write a number counts: 0 or 0.0.
        """
        return identity(self.cfg, rounds, like)

    @property
    def setting(self) -> str:
        """A hash that is the same for all seeds."""
        return setting(self.cfg)

    @property
    def own_sources(self) -> dict[str, str]:
        """A hash of each package of the user's own that the experiment names."""
        return own_sources(targets(self.cfg))

    @property
    def kind_of_data(self) -> str:
        """What decides the data set, as a text; its seed and folder are named, not told."""
        return str(self.cfg.dataset)

    @property
    def kind_of_step(self) -> str:
        """What decides the time of a training step, as a text."""
        cfg = self.cfg
        return str((cfg.dataset, cfg.model, cfg.client.batch_size, cfg.client.optimizer, cfg.device))

    def configuration(self) -> str:
        """Return the resolved configuration as YAML."""
        return OmegaConf.to_yaml(self.cfg, resolve=True)

    def flat_configuration(self) -> dict[str, str]:
        """Return the resolved configuration as {dotted key: text}."""
        settings = leaves(OmegaConf.to_container(self.cfg, resolve=True))
        return {key: str(value) for key, value in settings.items()}

    def without_references(self) -> str:
        """Return the override string with each value that names another written out."""
        return shlex.join(resolved(override, self.cfg) for override in shlex.split(self.overrides))

    @property
    def data_source(self) -> str:
        """The function or class that gives the data set, by name."""
        return str(self.cfg.dataset.load._target_)

    @property
    def replaces_strategy(self) -> bool:
        """Whether the strategy is of another class than its option says."""
        plain = config.composed_unchecked(f"strategy={self.choices['strategy']}").cfg
        return bool(self.cfg.strategy._target_ != plain.strategy._target_)

    @property
    def threads(self) -> int:
        """How many threads torch computes with; results are equal to the bit for equal threads."""
        return int(self.cfg.threads)

    @property
    def model_settings(self) -> dict[str, Any]:
        """The model's resolved configuration, as plain values: its class is ``_target_``."""
        settings: Any = OmegaConf.to_container(self.cfg.model, resolve=True)
        return dict(settings)

    @property
    def choices(self) -> dict[str, str]:
        """The option that each group has."""
        return choices(self.overrides)
