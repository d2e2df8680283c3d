"""Variants: one setting at several seeds, or with a few other values, known by their hashes."""

import copy
import shlex
from collections.abc import Mapping, Sequence

from omegaconf import OmegaConf

from . import config
from .identity import config_hash, identity


class Variants:
    """The setting that overrides name.

    Parameters
    ----------
    overrides : one by one, without a seed

    Raises
    ------
    UserError : for an override that the configuration does not take
    """

    def __init__(self, overrides: Sequence[str]) -> None:
        self._cfg = copy.deepcopy(config.load(shlex.join(overrides)))

    @property
    def rounds(self) -> int:
        """How many rounds a run has."""
        return int(self._cfg.rounds)

    @property
    def local_steps(self) -> int | None:
        """How many steps a node takes in a round; None where it counts epochs."""
        steps: int | None = self._cfg.client.local_steps
        return steps

    def change(self, values: Mapping[str, object]) -> None:
        """Set values by their dotted names."""
        for key, value in values.items():
            OmegaConf.update(self._cfg, key, value)

    def config_hash(self, seed: int | None = None) -> str:
        """Return the hash of the configuration, the same on every machine."""
        return config_hash(self._cfg, seed=seed)

    def identity(self, seed: int) -> str:
        """Return the identity of the run with this seed."""
        self._cfg.seed = seed
        return identity(self._cfg)
