"""Old names of the methods that a user's classes define: they work for one release."""

import logging
from collections.abc import Mapping
from functools import cache

logger = logging.getLogger("flwr")


def accept_old_names(cls: type, renamed: Mapping[str, str]) -> None:
    """Let a class that defines a method by its old name have it by the new one, with a line in the log.

    The old name of what it defines by the new one works as well, for subclasses that call ``super()``.
    """
    own = vars(cls)
    used = {old: new for old, new in renamed.items() if old in own and new not in own}
    for old, new in used.items():
        setattr(cls, new, own[old])
    for old, new in renamed.items():
        can_be_set = getattr(getattr(cls, old, None), "fset", None) is not None  # a property that delegates
        if new in own and old not in own and not can_be_set:
            setattr(cls, old, own[new])
    if used:
        warn_of_old_names(cls, used)


def warn_of_old_names(cls: type, used: Mapping[str, str]) -> None:
    """Log once which names of a class are old, and the new ones."""
    names = ", ".join(f"{old} is now {new}" for old, new in used.items())
    _warn_once(cls, f"{cls.__qualname__}: {names}; old names work in this release alone")


@cache
def _warn_once(cls: type, line: str) -> None:
    logger.warning(line)
