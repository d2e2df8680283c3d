"""A sweep that cannot come to good is refused before its first run: a callback of Hydra's."""

from typing import Any

from hydra.experimental.callback import Callback
from rich.console import Console

from .engine.metrics import less_is_better
from .errors import UserError
from .experiment import mode


class SweepChecks(Callback):
    """Say once what each of a sweep's runs would say, and end the program with status 2."""

    def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
        """Refuse a folder that a sweep does not read, and a search for the worst."""
        objective = str(config.objective)
        try:
            mode.check_folder(config.hydra)
            mode.check_direction(config.hydra, objective, less_is_better(objective))
        except UserError as error:
            Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(f"error: {error}")
            raise SystemExit(2) from error
