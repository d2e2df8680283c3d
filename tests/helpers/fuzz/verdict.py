"""What a try came to, and how a refusal is judged."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.fuzz.command import Ended

USAGE = re.compile(r"usage: |\s|.*: error: ")  # what argparse prints before its line, and the line's name


@dataclass(frozen=True)
class Result:
    """One try.

    Parameters
    ----------
    outcome : how it ended, in the table's words
    fault : what is not as promised; empty where all is
    command : what repeats it, for a shell
    """

    outcome: str
    fault: str
    command: str


def died(outcome: Ended) -> str:
    """Return how a command ended that no command may end so: with a traceback, or status 1."""
    if outcome.raised:
        return f"traceback: {outcome.raised}"
    lines = outcome.err.strip().splitlines()
    if "Traceback (most recent call last)" in outcome.err:
        return f"traceback: {lines[-1]}"
    if outcome.status not in (0, 2, None):
        return f"status {outcome.status}: {lines[-1] if lines else 'without a word'}"
    return ""


def not_one_line(outcome: Ended, names: Sequence[str]) -> str:
    """Return what is wrong with a refusal: it is one line, with one of ``names`` if there are any."""
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("usage: "):  # argparse's: how to call it, then one line
        lines = ["error: " + lines[-1].partition(" error: ")[2]] if USAGE.match(lines[-1]) else lines
    if len(lines) != 1 or not lines[0].startswith("error: "):
        return f"{len(lines)} lines: {' | '.join(lines)[:300]}"
    if names and not any(_named(name, lines[0]) for name in names if name):
        return f"names nothing that was given: {lines[0]}"
    return ""


def _named(name: str, line: str) -> bool:
    """Say whether a line names a setting; a data set in two words is one."""
    return (
        re.search(rf"(?<!\w){re.escape(name)}", line.replace("data set", "dataset"), re.IGNORECASE)
        is not None
    )
