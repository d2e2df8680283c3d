"""Modules: what a node imports of the server's parts, none of which it builds.

A message asks for corrections by key, and a node finds those of the modules that it has imported. One of
the user's own lies beside the strategy, or the part, that asks for it.
"""

from collections.abc import Iterator
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from baselines.errors import UserError


def import_all(part: DictConfig) -> None:
    """Import the modules of a part, and of the parts in it.

    Raises
    ------
    UserError : for one that cannot be imported here, without which a correction would be left out unseen
    """
    for target in targets(part):
        try:
            get_object(target)
        except Exception as error:  # whatever a module of the user's own raises
            said = " ".join(str(error).split())
            raise UserError(
                f"{target} cannot be imported: {said} (is its folder on PYTHONPATH?)"
            ) from error


def targets(part: DictConfig) -> Iterator[str]:
    """Yield what a part names as ``_target_``, and what the parts in it do."""
    return _targets(OmegaConf.to_container(part, resolve=True))


def _targets(settings: Any) -> Iterator[str]:
    if isinstance(settings, dict):
        if "_target_" in settings:
            yield str(settings["_target_"])
        settings = list(settings.values())
    for value in settings if isinstance(settings, list) else ():
        yield from _targets(value)
