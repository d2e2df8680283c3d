"""Tables of texts on a terminal, whatever its width."""

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table


def show(table: pd.DataFrame, console: Console, title: str) -> None:
    """Print the table; where the settings' names leave it no room, they are numbered and follow below.

    Columns that then still have no room come in a table of their own.
    """
    if _fits(table, console, title):
        console.print(_terminal(table, title))
        return
    places = [str(place + 1) for place in range(len(table))]
    numbered = table.assign(setting=places)
    columns: list[str] = []
    for heading in map(str, list(table)[1:]):
        if columns and not _fits(numbered[["setting", *columns, heading]], console, ""):
            console.print(_terminal(numbered[["setting", *columns]], title))
            columns = []
        columns.append(heading)
    console.print(_terminal(numbered[["setting", *columns]], title))
    for place, setting in zip(places, table.setting, strict=True):
        console.print(f"{place:>3}  {setting}", soft_wrap=True)


def _fits(table: pd.DataFrame, console: Console, title: str) -> bool:
    return width_of(_terminal(table, title), console) <= console.width


def _terminal(table: pd.DataFrame, title: str) -> Table:
    out = Table(title=title, box=box.SIMPLE_HEAD)
    for heading in table:
        number = heading not in ("setting", "seeds", "rounds")
        out.add_column(str(heading), justify="right" if number else "left")
    for row in table.to_numpy().tolist():
        out.add_row(*row)
    return out


def width_of(table: Table, console: Console) -> int:
    """Return how wide it would be with nothing wrapped."""
    return console.measure(table, options=console.options.update(width=10_000)).maximum
