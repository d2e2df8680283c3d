"""A setting that there is none of: the nearest name in the configuration that was chosen."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from omegaconf import OmegaConf


def nearest(name: str, error: Exception) -> str | None:
    """Return the setting that ``name`` comes near to, if there is one.

    ``error`` is Hydra's; its cause knows the configuration, unless the error comes from another process.
    """
    node = getattr(error.__cause__, "parent_node", None)
    if node is None:
        return None
    chosen = _names(OmegaConf.to_container(node._get_root()))
    others = [other for other in chosen if not name.startswith(f"{other}.")]  # what it would stand in
    return next(iter(get_close_matches(name, others, n=1, cutoff=0.8)), None)


def _names(settings: Any, within: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings."""
    for key, value in settings.items():
        yield f"{within}{key}"
        if isinstance(value, dict):
            yield from _names(value, f"{within}{key}.")
