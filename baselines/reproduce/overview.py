"""What can be reproduced: the papers' tables, how many of their cells have a number of ours, what holds."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from . import collect, numbers, paper_tables, scoreboard
from .paper_tables import PaperTable


def show(papers: Sequence[str], out: Console) -> None:
    """Print a line for each table of these papers, and one for each of their claims.

    Raises
    ------
    UserError : for a paper that is not there
    """
    counts = {
        (paper, name): _counts(one) for paper in papers for name, one in paper_tables.tables(paper).items()
    }
    totals = [str(sum(column)) for column in zip(*counts.values(), strict=True)]
    view = Table(box=box.SIMPLE_HEAD, show_footer=True)
    view.add_column("paper", no_wrap=True)
    view.add_column("table", footer="all", no_wrap=True)  # to be copied
    for heading, total in zip(("cells", "run", "not the paper's setting"), totals, strict=True):
        view.add_column(heading, justify="right", footer=total)
    for names, counted in counts.items():
        view.add_row(*names, *map(str, counted))
    out.print(view)
    for paper in papers:
        out.print(f"  {paper}")
        for claim in scoreboard.claims(paper):
            out.print(f"    {scoreboard.line(claim)}", soft_wrap=True)


def _counts(table: PaperTable) -> tuple[int, int, int]:
    """Return how many cells there are, have a number of ours, and have none in the paper's own setting."""
    rows = collect.read(paper_tables.PAPERS / table.paper / "ours" / f"{table.name}.csv")
    ours = numbers.ours(numbers.settings(table, rows, {})).values()
    return len(table.cells()), len(ours), sum(bool(one.changes) for one in ours)
