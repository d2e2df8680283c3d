"""audit: what has been asked of a site, and what left it, as a table of its audit log."""

import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from baselines.errors import UserError
from baselines.site.policy import read_leniently
from baselines.site.record import AUDIT, SiteRecord

COLUMNS = ("time", "run", "asked", "round", "experiment", "rows", "bytes", "norm", "epsilon", "refused")


def show(site_file: Path, last: int) -> None:
    """Print the last lines of a site's audit log, and what its budgets have left.

    Raises
    ------
    UserError : where there is no log, or a line of it is none; for a damaged file after the log is printed
    """
    policy, damage = read_leniently(site_file)
    path = policy.state_folder / AUDIT
    if damage and not path.exists():
        raise damage
    entries = _entries(path)
    table = Table(*COLUMNS, box=None, pad_edge=False)
    for entry in entries[-last:]:
        table.add_row(*(_text(entry.get(column)) for column in COLUMNS))
    width = None if os.isatty(1) else 200
    console = Console(width=width, highlight=False, markup=False)
    console.print(table)
    runs = len({entry.get("run") for entry in entries})
    console.print(f"{len(entries)} messages of {runs} runs in {path}")
    if damage:
        raise damage
    limit = "" if policy.max_epsilon is None else f" of {policy.max_epsilon:g}"
    console.print(f"epsilon spent: {SiteRecord(policy).epsilon():.4g}{limit}, at delta={policy.delta:g}")


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): no message has come yet?") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
