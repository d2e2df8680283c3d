"""A paper's tables as one HTML page: the generated pages, one below the other, with their figures."""

import re
from base64 import b64encode
from pathlib import Path

from markdown_it import MarkdownIt

from baselines.errors import UserError
from baselines.reports.page.skeleton import whole
from baselines.reports.written import write

from . import paper_tables


def write_page(papers: list[str], target: Path) -> None:
    """Write a page of these papers' tables that needs nothing else; its tables sort.

    Raises
    ------
    UserError : for a paper that is not there, or none of whose tables has been made
    """
    parts = [_table(paper, name) for paper in papers for name in paper_tables.tables(paper)]
    body = "\n".join(filter(None, parts))
    if not body:
        raise UserError(f"no table of {', '.join(papers)} has been made yet: run one of them first")
    title = papers[0] if len(papers) == 1 else "The papers' tables"
    write(target, whole(title, f"<h1>{title}</h1>\n{body}"))


def _table(paper: str, name: str) -> str:
    """Return a generated page as HTML, and its figure; nothing where the table has not been made."""
    file = paper_tables.PAPERS / paper / "ours" / f"{name}.md"
    if not file.exists():
        return ""
    text = re.sub(r"^#", "##", file.read_text(encoding="utf-8"), flags=re.M)
    shown = MarkdownIt("commonmark").enable("table").render(text)
    shown = shown.replace("<table>", '<div class="wide"><table class="sortable">')
    shown = shown.replace("</table>", "</table></div>")
    picture = file.with_suffix(".png")
    if picture.exists():
        data = b64encode(picture.read_bytes()).decode()
        shown += f'<img alt="{paper}, {name}" src="data:image/png;base64,{data}">'
    return f"<section>{shown}</section>"
