"""The generated parts of a paper's page: its tables beside ours with their figures, and what was not run.

The claims, the front page and its figure are renewed with them.

Each table of the paper becomes one table with a row per cell that was run. Numbers of another setting, and
other readings of the paper's text, are further columns (``tables.yaml``: ``columns``, ``beside``). A table
with many rows has the last key's values side by side.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pandas as pd
from filelock import FileLock

from baselines.engine.environment import write_atomically
from baselines.engine.run_folder import LOCK
from baselines.reports.names import cell_name, column_name, value_name
from baselines.reports.tables import markdown_table

from . import paper_tables, report, results
from .claims import claims_table, front_table, page_claims
from .paper_tables import Cell, PaperTable, agrees
from .report import number_format
from .results import Keys, Ours
from .text_claims import page_others

MAX_ROWS = 30  # rows; with more, the last key's values are side by side
DAGGER = " †"


@dataclass(frozen=True)
class _Column:
    """A column with numbers of another setting, or another reading of the paper."""

    heading: str
    table: PaperTable
    numbers: Mapping[Keys, Ours]

    def text(self, cell: Cell) -> str:
        """Return mean, deviation and, if several, the number of seeds."""
        ours = self.numbers.get(_keys(cell))
        if ours is None:
            return ""
        seeds = f" ({len(ours.by_seed)})" if len(ours.by_seed) > 1 else ""
        return _spread(self.table, ours.mean, ours.std) + seeds


@dataclass(frozen=True)
class _View:
    """What the page shows of a table."""

    table: PaperTable
    cells: Sequence[Cell]
    ours: Mapping[Keys, Ours]
    further: Sequence[_Column]

    @property
    def is_smaller(self) -> bool:
        """Whether none of our numbers is at the paper's setting."""
        return all(ours.changes for ours in self.ours.values())


def write_tables(papers: Sequence[str]) -> list[Path]:
    """Renew the page and figure of each table with results; return the files."""
    renewed: list[Path] = []
    for paper in papers:
        folder = paper_tables.PAPERS / paper / "ours"
        for name, table in paper_tables.tables(paper).items():
            if (folder / f"{name}.csv").exists():
                renewed += filter(None, write_table(table, folder))
    return renewed


def write_table(table: PaperTable, folder: Path) -> tuple[Path, Path | None]:
    """Write a table's page, and its figure if that has changed; return their paths."""
    from .figures import draw_figure  # matplotlib takes a second

    rows = results.read(folder / f"{table.name}.csv")
    settings = results.settings(table, rows, results.configs(table, rows))
    points = results.read(folder / f"{table.name}_curves.csv")
    return report.write(table, settings, folder), draw_figure(table, results.ours(settings), points, folder)


def write_pages(papers: Sequence[str]) -> list[Path]:
    """Renew the generated parts of the papers' pages, of the front page and its figure; return the files.

    A wheel has neither front page nor ``docs``.
    """
    with FileLock(paper_tables.PAPERS / LOCK):  # another process may be writing
        renewed = [paper_tables.PAPERS / paper / "README.md" for paper in papers]
        for paper, page in zip(papers, renewed, strict=True):
            for part, content in (
                ("claims", page_claims),
                ("tables", page_tables),
                ("others", page_others),
                ("missing", page_missing),
            ):
                replace_marked(page, content(paper), part)
        root, every = paper_tables.PAPERS.parents[1], paper_tables.papers()
        for page, table in (
            (root / "README.md", front_table),
            (root / "docs" / "reproduce.md", claims_table),
        ):
            if page.exists():
                replace_marked(page, table(every))
                renewed.append(page)
        if (root / "docs").is_dir():
            from .overview import draw_overviews  # matplotlib takes a second

            renewed += draw_overviews(every, root / "docs")
    return renewed


def replace_marked(path: Path, content: str, part: str = "claims") -> None:
    """Put ``content`` between a part's two marks in a file; without marks, nothing changes."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    marked = re.compile(rf"(<!-- {part}: generated -->\n).*?(<!-- end -->)", re.S)
    fresh = marked.sub(lambda marks: f"{marks[1]}{content}\n{marks[2]}", text)
    if fresh != text:
        write_atomically(path, fresh)


def page_tables(paper: str) -> str:
    """Return all tables of a paper with results, in Markdown."""
    parts = []
    for name, table in paper_tables.tables(paper).items():
        figure = f"![{table.title}](ours/{name}.png)"
        has_figure = (_folder(paper) / f"{name}.png").exists()
        if table.show == "figure":
            parts += [figure] * has_figure
        elif not table.beside and (view := _view(table)).cells:
            parts.append(_section(view))
            parts += [figure] * (has_figure and bool(table.findings))
    return "\n\n".join(parts)


def _view(table: PaperTable) -> _View:
    settings = results.settings(table, _rows(table), {})
    is_whole = any(one.changes == "" for several in settings.values() for one in several)
    ours = {
        keys: several[0] for keys, several in settings.items() if not is_whole or several[0].changes == ""
    }
    other: dict[str, dict[Keys, Ours]] = {}
    for keys, several in settings.items():
        for one in several:
            if one is not ours.get(keys):
                heading = table.columns.get(one.changes, f"`{one.changes}`")
                other.setdefault(heading, {})[keys] = one
    further = [_Column(heading, table, numbers) for heading, numbers in other.items()]
    for further_table in paper_tables.tables(table.paper).values():
        if further_table.beside.get("table") == table.name:
            further += _columns_beside(table, further_table)
    cells = [
        cell
        for cell in table.cells()
        if _keys(cell) in ours or any(_keys(cell) in column.numbers for column in further)
    ]
    return _View(table, cells, ours, further)


def _columns_beside(table: PaperTable, further_table: PaperTable) -> Iterator[_Column]:
    """Yield the further columns that ``further_table`` adds to a table."""
    ours_beside = results.ours(results.settings(further_table, _rows(further_table), {}))
    own = [column for column in further_table.keys if column not in table.keys]
    values = further_table.beside.get("values", {})
    columns: dict[str, dict[Keys, Ours]] = {}
    for cell in table.cells():
        if not agrees(cell.keys, further_table.beside.get("where", {})):
            continue
        for other in further_table.cells():
            shared = {key: value for key, value in other.keys.items() if key in table.keys}
            ran = ours_beside.get(_keys(other))
            if ran is None or not agrees(cell.keys, shared) or not agrees(other.keys, values):
                continue
            named = cell_name({key: other.keys[key] for key in own})
            heading = further_table.beside["heading"] + (f": {named}" if named else "")
            columns.setdefault(heading, {})[_keys(cell)] = ran
    for heading, numbers in columns.items():
        yield _Column(heading, further_table, numbers)


def _section(view: _View) -> str:
    table = view.table
    fixed = {
        column: view.cells[0].keys[column]
        for column in table.keys
        if len(table.keys) > 1 and len({cell.keys[column] for cell in view.cells}) == 1
    }
    keys = [column for column in table.keys if column not in fixed]
    wide = len(view.cells) > MAX_ROWS and len(keys) > 1
    named = cell_name(fixed)
    notes = [f"{named[0].upper()}{named[1:]}." if named else "", _smaller(view), _links(table)]
    rows = _side_by_side(view, keys) if wide else _below_each_other(view, keys)
    text = markdown_table(rows[0], rows[1:]).rstrip()
    return f"### {table.title}\n\n{' '.join(filter(None, notes))}\n\n{text}"


def _links(table: PaperTable) -> str:
    """Return the links to every cell and, if the page does not show it, to the figure."""
    cells = f"[Every cell](ours/{table.name}.md)"
    hidden = not table.findings and (_folder(table.paper) / f"{table.name}.png").exists()
    return cells + (f", [figure](ours/{table.name}.png)." if hidden else ".")


def _smaller(view: _View) -> str:
    """Say how a smaller setting differs from the paper's."""
    if not view.is_smaller or not view.ours:
        return ""
    changes = dict.fromkeys(ours.changes for ours in view.ours.values())
    return f"† Smaller setting: {', or '.join(f'`{one}`' for one in changes)}."


def _below_each_other(view: _View, keys: Sequence[str]) -> list[list[str]]:
    """Return a heading and a row for each cell, without empty columns."""
    table = view.table
    columns: dict[str, Callable[[Cell], str]] = {
        "paper": lambda cell: _spread(table, cell.paper_mean, cell.paper_std),
        "ours" + DAGGER * view.is_smaller: lambda cell: _ours(view, cell),
        "difference": lambda cell: _difference(view, cell),
        "seeds": lambda cell: _seeds(view, cell),
        **{column.heading: column.text for column in view.further},
        "see": lambda cell: _see(view, cell),
    }
    rows = [
        [*map(column_name, keys), *columns],
        *(
            [
                *(value_name(cell.keys[key], key) for key in keys),
                *(text(cell) for text in columns.values()),
            ]
            for cell in view.cells
        ),
    ]
    return _without_empty(rows)


def _side_by_side(view: _View, keys: Sequence[str]) -> list[list[str]]:
    """Return a heading, and rows that have the last key's values side by side."""
    *outer, last = keys
    values = list(dict.fromkeys(cell.keys[last] for cell in view.cells))
    groups: dict[Keys, dict[str, Cell]] = {}
    for cell in view.cells:
        groups.setdefault(tuple(cell.keys[key] for key in outer), {})[cell.keys[last]] = cell
    names = [value_name(value, last) for value in values]
    heading = [*map(column_name, outer)]
    heading += [f"{name}, {what}" for name in names for what in ("paper", "ours", "difference")]
    heading += [f"{name}, {column.heading}" for column in view.further for name in names]
    rows = [[*heading, "seeds", "see"]]
    for group, cells in groups.items():
        row_cells = [cells.get(value) for value in values]
        row = [value_name(value, key) for key, value in zip(outer, group, strict=True)]
        for each in row_cells:
            row += _numbers(view, each)
        row += [column.text(some) if some else "" for column in view.further for some in row_cells]
        for text in (_seeds, _see):
            texts = dict.fromkeys(text(view, each) for each in row_cells if each)
            row.append(", ".join(filter(None, texts)))
        rows.append(row)
    return _without_empty(rows)


def _numbers(view: _View, cell: Cell | None) -> list[str]:
    if cell is None:
        return ["", "", ""]
    paper = _spread(view.table, cell.paper_mean, cell.paper_std)
    return [paper, _ours(view, cell), _difference(view, cell)]


def _without_empty(rows: list[list[str]]) -> list[list[str]]:
    filled = [place for place in range(len(rows[0])) if any(row[place] for row in rows[1:])]
    return [[row[place] for place in filled] for row in rows]


def _ours(view: _View, cell: Cell) -> str:
    ours = view.ours.get(_keys(cell))
    return _spread(view.table, ours.mean, ours.std) if ours else ""


def _difference(view: _View, cell: Cell) -> str:
    ours = view.ours.get(_keys(cell))
    if ours is None or ours.changes or cell.paper_mean is None:
        return ""
    return f"{(ours.mean - cell.paper_mean) * (view.table.points or 1.0):+{_format(view.table)}}"


def _seeds(view: _View, cell: Cell) -> str:
    ours = view.ours.get(_keys(cell))
    return str(len(ours.by_seed)) if ours else ""


def _see(view: _View, cell: Cell) -> str:
    """Return the numbers of the page's differences that apply to a cell."""
    own = [one["difference"] for one in view.table.readings if agrees(cell.keys, one["where"])]
    own += [
        column.table.beside["difference"]
        for column in view.further
        if "difference" in column.table.beside and _keys(cell) in column.numbers
    ]
    return ", ".join(str(number) for number in sorted(set(own)))


def _spread(table: PaperTable, mean: float | None, std: float | None) -> str:
    if mean is None:
        return ""
    factor, form = table.points or 1.0, _format(table)
    return f"{mean * factor:{form}}" + (f" ± {std * factor:{form}}" if std is not None else "")


def _format(table: PaperTable) -> str:
    if table.points:
        return ".2f"
    form = number_format(table)
    return ".4g" if form == ".4f" else form


# What was not run, and what that would cost.


def page_missing(paper: str) -> str:
    """Return a row for each table that has cells without a number at the paper's setting."""
    rows = []
    for name, table in paper_tables.tables(paper).items():
        numbers = results.ours(results.settings(table, _rows(table), {}))
        left = [cell for cell in table.cells() if (one := numbers.get(_keys(cell))) is None or one.changes]
        if left:
            runs = len(left) * table.seeds
            command = f"`python -m baselines.reproduce {paper} {name}`"
            rows.append([table.title, f"{len(left)} of {len(table.cells())}", _cost(table, runs), command])
    if not rows:
        return "All cells have been run."
    return markdown_table(["table", "cells not run", "it would take", "command"], rows).rstrip()


def _cost(table: PaperTable, runs: int) -> str:
    """Return the number of runs, and their hours estimated from existing runs at the paper's setting."""
    rows = _rows(table)
    text = f"{runs} run{'s' * (runs > 1)}"
    if rows.empty or "seconds" not in rows:
        return text
    own = rows[(rows.changes == "") & (rows.seconds != "")]  # early rows lack a duration
    if own.empty:
        return text
    hours = median(own.seconds.astype(float)) * runs / 3600
    devices = " and ".join(sorted(set(own.device))) if "device" in own else ""
    return f"{text}, about {max(1, round(hours))} h" + (f" ({devices})" if devices else "")


def _rows(table: PaperTable) -> pd.DataFrame:
    return results.read(_folder(table.paper) / f"{table.name}.csv")


def _folder(paper: str) -> Path:
    return paper_tables.PAPERS / paper / "ours"


def _keys(cell: Cell) -> Keys:
    return tuple(cell.keys.values())
