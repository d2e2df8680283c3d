"""A setting or an option that does not exist: what was probably meant."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from omegaconf import OmegaConf

from .places import CONF, SHARED

ELSEWHERE = {"clients": "nodes", "client": "node", "epochs": "local_epochs", "learning_rate": "lr"}
MOST_HINTS = 3


def nearest(name: str, value: str, error: Exception) -> str | None:
    """Return what was probably meant by an unknown setting, if anything comes near.

    An option of that name comes first (``optimizer=adam`` means ``client=adam``), then a setting of the
    configuration that was chosen. Without that configuration (the error comes from another process)
    there are no settings to look at.

    Parameters
    ----------
    name, value : of the override
    error : Hydra's; its cause knows the configuration
    """
    if option := option_of(value, name):
        return option
    node = getattr(error.__cause__, "parent_node", None)
    if node is None:
        return None
    settings = [
        setting
        for setting in _names(OmegaConf.to_container(node._get_root()))
        if not name.startswith(f"{setting}.") and name != setting  # what it would stand in
    ]
    within, dot, last = name.rpartition(".")
    for word in (last, ELSEWHERE.get(last, last)):
        deeper = [one for one in settings if one.startswith(within + dot) and one.endswith(f".{word}")]
        if len(deeper) == 1:  # client.lr
            return deeper[0]
    beside = [one.rpartition(".")[2] for one in settings if one.rpartition(".")[0] == within]
    same_words = [other for other in beside if _shares_words(last, other)]
    near = (
        same_words if len(same_words) == 1 else get_close_matches(last, beside, 1, 0.75)
    )  # num_rounds, rnds
    return within + dot + near[0] if near else next(iter(get_close_matches(name, settings, 1, 0.85)), None)


def option_of(value: str, name: str) -> str | None:
    """Return ``group=value`` for the groups that have an option of this name; None where none has.

    A group that ``name`` lies in wins over the others (``client.optimizer`` over ``server_optimizer``).
    """
    if not value.isidentifier() or value in SHARED:
        return None
    groups = [path.parent.name for path in sorted(CONF.glob(f"*/{value}.yaml"))]
    groups = [group for group in groups if name.startswith(f"{group}.")] or groups
    return " or ".join(f"{group}={value}" for group in groups) if len(groups) <= MOST_HINTS else None


def near_option(name: str, options: Iterable[str]) -> str | None:
    """Return the option that a misspelt one comes near to, if there is one."""
    return next(iter(get_close_matches(name.rpartition("/")[2], [*options], 1, 0.7)), None)


def _shares_words(name: str, other: str) -> bool:
    """Say whether all words of one name are in the other, by this project's words."""
    words = {ELSEWHERE.get(word, word) for word in name.split("_")}
    others = set(other.split("_"))
    return words <= others or others <= words


def _names(settings: Any, within: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings."""
    for key, value in settings.items():
        yield f"{within}{key}"
        if isinstance(value, dict):
            yield from _names(value, f"{within}{key}.")
