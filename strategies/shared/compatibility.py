"""A row of the table of what does not go together.

``baselines/experiment/compatibility.py`` is the table. Parts that are used from plain Python, too, refuse by
themselves, and a row names the check; batching is decided at a node, and has its rows there.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Conflict:
    """Two choices of a configuration that exclude each other.

    Parameters
    ----------
    choice, other : as the command line has them
    reason : why, in a few words
    find : returns the message for what is known (an experiment, or a round's nodes); None where at most one
        of the two is chosen
    checked_by : in the place of ``find``, the full name of what refuses them, in plain Python, too
    example : overrides that choose both; empty where the options in conf/ cannot
    """

    choice: str
    other: str
    reason: str
    find: Callable[[Any], str | None] | None = None
    checked_by: str = ""
    example: str = ""


def first_message(conflicts: Iterable[Conflict], known: Any) -> str | None:
    """Return the message of the first row whose choices are both made; None where there is none."""
    messages = (conflict.find(known) for conflict in conflicts if conflict.find)
    return next((message for message in messages if message), None)
