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
    others = [
        other
        for other in _names(OmegaConf.to_container(node._get_root()))
        if not name.startswith(f"{other}.") and name != other  # what it would stand in
    ]
    within, dot, last = name.rpartition(".")
    deeper = [other for other in others if other.startswith(within + dot) and other.endswith(f".{last}")]
    if len(deeper) == 1:  # client.lr
        return deeper[0]
    return next(iter(get_close_matches(name, others, n=1, cutoff=0.85)), None)


def _names(settings: Any, within: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings."""
    for key, value in settings.items():
        yield f"{within}{key}"
        if isinstance(value, dict):
            yield from _names(value, f"{within}{key}.")
