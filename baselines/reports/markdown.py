"""A table in Markdown."""

from collections.abc import Iterable, Sequence


def markdown_table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table of texts; a ``|`` in one of them stays in its cell."""
    rows = [headings, ["---"] * len(headings), *lines]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)
