"""Renew the generated parts of the papers' pages, the claims and the front page."""

import re
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from baselines.engine.environment import write_atomically
from baselines.engine.run_folder import LOCK

from . import paper_tables, report, results
from .claims import claims_table, front_table, page_claims
from .page import page_missing, page_tables
from .paper_tables import PaperTable
from .text_claims import page_others


def write_tables(papers: Sequence[str]) -> list[Path]:
    """Renew the page and the figure of each table of which there are numbers; return the files."""
    renewed: list[Path] = []
    for paper in papers:
        folder = paper_tables.PAPERS / paper / "ours"
        for name, table in paper_tables.tables(paper).items():
            if (folder / f"{name}.csv").exists():
                renewed += filter(None, write_table(table, folder))
    return renewed


def write_table(table: PaperTable, folder: Path) -> tuple[Path, Path | None]:
    """Write a table's page, and its figure where that shows anything else; return their paths."""
    from .figures import draw_figure  # matplotlib takes a second

    rows = results.read(folder / f"{table.name}.csv")
    settings = results.settings(table, rows, results.configs(table, rows))
    points = results.read(folder / f"{table.name}_curves.csv")
    return report.write(table, settings, folder), draw_figure(table, results.ours(settings), points, folder)


def write_pages(papers: Sequence[str]) -> list[Path]:
    """Renew the generated parts of the papers' pages, of the front page and its figure; return the files.

    A wheel has neither front page nor ``docs``.
    """
    with FileLock(paper_tables.PAPERS / LOCK):  # another process may have run another table
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
    """Put ``content`` between the two marks of a part of the file; without them nothing changes."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    marked = re.compile(rf"(<!-- {part}: generated -->\n).*?(<!-- end -->)", re.S)
    fresh = marked.sub(lambda marks: f"{marks[1]}{content}\n{marks[2]}", text)
    if fresh != text:
        write_atomically(path, fresh)
