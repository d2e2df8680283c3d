"""A sweep that cannot come to good is refused before its first run: a callback of Hydra's."""

import sys
from typing import Any

from hydra.experimental.callback import Callback

from .errors import UserError
from .experiment.hydra_callbacks import check_direction, check_folder


class SweepChecks(Callback):
    """Say once what each of a sweep's runs would say, and end the program with status 2."""

    def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
        """Refuse a folder that a sweep does not read, and a search for the worst."""
        from .engine.metrics import less_is_better  # and with it torch

        objective = str(config.objective)
        try:
            check_folder(config.hydra)
            check_direction(config.hydra, objective, less_is_better(objective))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from error
