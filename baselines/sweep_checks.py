"""Refuse a mistaken sweep before its first run, by a callback of Hydra."""

import sys
from typing import Any

from hydra.experimental.callback import Callback

from .errors import UserError
from .experiment.hydra_callbacks import check_direction, check_folder


class SweepChecks(Callback):
    """Print once the error that every run of a sweep would print, and exit with status 2."""

    def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
        """Refuse a folder setting that a sweep ignores, and a search for the worst value."""
        from .engine.metrics import is_lower_better  # imports torch

        objective = str(config.objective)
        try:
            check_folder(config.hydra)
            check_direction(config.hydra, objective, is_lower_better(objective))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from error
