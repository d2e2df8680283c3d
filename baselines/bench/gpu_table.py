"""What holds on a GPU and what does not: one table, on the terminal and as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from baselines.reports.markdown import markdown_table

HEADINGS = ("what", "found", "expected", "holds")


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Parameters
    ----------
    what : was looked at
    found : in words
    expected : in words; empty where nothing is, as of a time without a goal
    holds : whether it is as expected; None where that was not seen
    """

    what: str
    found: str
    expected: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """The last column."""
        if not self.expected:
            return ""
        return "not seen" if self.holds is None else "yes" if self.holds else "no"


def summary(checks: Sequence[Check]) -> str:
    """Return how many hold, do not, and were not seen."""
    verdicts = [check.verdict for check in checks]
    counts = [verdicts.count(verdict) for verdict in ("yes", "no", "not seen")]
    return f"{counts[0]} hold, {counts[1]} do not, {counts[2]} not seen"


def terminal(checks: Sequence[Check], title: str) -> Table:
    """Return the table for the terminal."""
    out = Table(title=title)
    for heading in HEADINGS:
        out.add_column(heading, overflow="fold")
    for check in checks:
        out.add_row(*_line(check), style="red" if check.verdict == "no" else None)
    return out


def write(checks: Sequence[Check], machine: Mapping[str, object], target: Path) -> None:
    """Write the table, with the machine's description below it."""
    table = markdown_table(HEADINGS, map(_line, checks))
    told = "".join(f"- {key}: {value}\n" for key, value in machine.items())
    target.write_text(f"{table}\n{summary(checks)}\n\n{told}", encoding="utf-8")


def _line(check: Check) -> tuple[str, ...]:
    return check.what, check.found, check.expected, check.verdict
