"""A sweep writes down what it varies, and says which of how many runs begins.

A callback of Hydra's, which launchers take along.
"""

import contextlib
from math import prod
from pathlib import Path
from typing import Any, cast

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from .overrides import MULTIRUN, swept


class SweepProgress(Callback):
    """Print ``run 2 of 6: strategy=fedexp seed=0`` before a run of a sweep; nothing before a single one."""

    def __init__(self) -> None:
        self.sweeping = False
        self.total: int | None = None
        self.swept: set[str] = set()

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Count the runs: the sweeper's number of trials, or all combinations of what is swept.

        Write down what was asked for, by which the runs' folders are named: not every sweeper does.
        """
        varied = swept(config.hydra)
        self.swept = {override.get_key_element() for override in varied}
        self.total = config.hydra.sweeper.get("n_trials") or _combinations(varied)
        self.sweeping = True
        with contextlib.suppress(OSError):  # Hydra meets that, too, and says so
            folder = Path(config.hydra.sweep.dir)
            folder.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(config, folder / MULTIRUN)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Say which one it is, and what is its own of what is swept."""
        if not self.sweeping:
            return
        own = [text for text in _as_typed(config) if text.partition("=")[0] in self.swept]
        console = Console(soft_wrap=True, highlight=False, markup=False)
        of = f" of {self.total}" if self.total else ""
        console.print(f"run {config.hydra.job.num + 1}{of}: {' '.join(own) or 'the only one'}")


def _as_typed(config: DictConfig) -> list[str]:
    """Return the overrides unresolved: ``${.x}`` in one is a neighbour of the setting, not of this list."""
    return cast(list[str], OmegaConf.to_container(config.hydra.overrides.task, resolve=False))


def _combinations(varied: list[Override]) -> int | None:
    """Return how many there are; None where only the sweeper knows (a glob, an interval)."""
    try:
        return prod(sum(1 for _ in override.sweep_iterator()) for override in varied)
    except HydraException:
        return None
