"""Paper and ours as Markdown: the cells with means, spreads and differences, and the findings."""

import math
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from baselines.engine.environment import write_atomically
from baselines.errors import UserError
from baselines.reports.html import format_page
from baselines.reports.tables import markdown_table, write_text

from . import paper_tables
from .claims import SMALLER_SETTING, table_claims
from .findings import CONTRADICTED, VERDICTS, Comparison, comparisons
from .paper_tables import Cell, PaperTable
from .results import Keys, Ours, Results, ours

EXPLAINED = """A finding is compared in each pair of cells that it speaks of, seed by seed: both have the
same partition and first model. It is confirmed or contradicted where a paired t-test says so with p < 0.05,
after Holm's correction for all pairs, of all tables, that test the finding. Otherwise it is undecided, and so
it is with one seed, or where every seed has the same difference. "Ahead" counts the pairs whose mean
difference has the finding's sign.

"""
WITHOUT_SEEDS = """A finding is compared in each pair of cells that it speaks of. The seed decides nothing
here, so that one run of each is enough: the better number confirms or contradicts it.

"""


def markdown(table: PaperTable, settings: Mapping[Keys, list[Ours]]) -> str:
    """Return the table, and below it the numbers of further settings and the findings."""
    caption = f"{table.subject}; generated, mean ± standard deviation over seeds."
    results = ours(settings)
    parts = [_cells(table, results), *_further(table, settings), *_findings(table, settings)]
    return f"# {table.paper}, {table.name}\n\n{caption}\n\n{''.join(parts)}"


def _cells(table: PaperTable, results: Results) -> str:
    cells = table.cells()
    printed = any(cell.paper_mean is not None for cell in cells)
    headings = [*table.keys, *(["paper"] if printed else []), "ours", "seeds"]
    headings += [*(["difference"] if printed else []), "note"]
    lines = []
    for cell in cells:
        number = results.get(tuple(cell.keys.values()))
        paper = [_number(table, cell.paper_mean, cell.paper_std)] if printed else []
        lines.append([*cell.keys.values(), *paper, *_ours(table, cell, number, printed)])
    command = f"python -m baselines.reproduce {table.paper} {table.name}"
    empty = f"\nAn empty row is filled by `{command}` with the `--where` that it shows.\n"
    return markdown_table(headings, lines) + (empty if len(results) < len(cells) else "")


def _ours(table: PaperTable, cell: Cell, number: Ours | None, printed: bool) -> list[str]:
    """Return our part of a row; for an empty one, the selection that fills it.

    A number of another setting has no difference from the paper's, which would be meaningless.
    """
    if number is None:
        where = ",".join(f"{key}={value}" for key, value in cell.keys.items())
        return ["", "", *([""] if printed else []), f"`--where {where}`"]
    difference = ""
    if cell.paper_mean is not None and not number.changes:
        difference = f"{number.mean - cell.paper_mean:+{number_format(table)}}"
    numbers = [_number(table, number.mean, number.std), str(len(number.by_seed))]
    return [*numbers, *([difference] if printed else []), number.note]


def _further(table: PaperTable, settings: Mapping[Keys, list[Ours]]) -> Iterator[str]:
    """Yield a table of the cells' numbers in other settings than the one that counts."""
    order = [tuple(cell.keys.values()) for cell in table.cells()]
    rest = [(keys, one) for keys in order for one in settings.get(keys, [])[1:]]
    if not rest:
        return
    yield "\n## Further settings\n\n"
    yield markdown_table(
        [*table.keys, "ours", "seeds", "note"],
        [[*keys, _number(table, one.mean, one.std), str(len(one.by_seed)), one.note] for keys, one in rest],
    )


def _findings(table: PaperTable, settings: Mapping[Keys, list[Ours]]) -> Iterator[str]:
    if not table.findings:
        return
    yield "\n## Findings\n\n"
    yield EXPLAINED if table.seeded else WITHOUT_SEEDS
    lines, details = [], []
    claims = table_claims(table, settings)
    for finding in table.findings:
        pairs = [counting(several) for several in comparisons(table, finding, settings)]
        printed = [replace(pair, ours=pair.paper) for pair in pairs if pair.paper is not None]
        holds = f"{sum(pair.ahead for pair in printed)} of {len(printed)}" if printed else ""
        run = [pair for pair in pairs if pair.ours is not None]
        texts = (finding["text"] + SMALLER_SETTING * pair.departs for pair in pairs)
        verdicts = [claims[text].verdict_of(pair) for text, pair in zip(texts, pairs, strict=True)]
        counts = [str(verdicts.count(verdict)) for verdict in VERDICTS]
        ahead = f"{sum(pair.ahead for pair in run)} of {len(run)}" if run else ""
        if departing := sum(pair.departs for pair in pairs):
            ahead += f"; {departing} not in the paper's setting"
        lines.append([finding["text"], holds, *counts, ahead])
        judged = zip(pairs, verdicts, strict=True)
        details += [_detail(table, finding, pair) for pair, verdict in judged if verdict == CONTRADICTED]
    yield markdown_table(["finding", "in the paper", *VERDICTS, "ahead"], lines)
    if details:
        yield "\nWhere ours contradicts it:\n\n" + "".join(details)


def counting(several: Sequence[Comparison]) -> Comparison:
    """Return the comparison of a pair that counts in its table: the first that was run."""
    return next((one for one in several if one.ours is not None), several[0])


def _detail(table: PaperTable, finding: Mapping[str, Any], pair: Comparison) -> str:
    where = ", ".join(f"{key} {value}" for key, value in pair.keys.items())
    paper = "" if pair.paper is None else f", paper {pair.paper:+{number_format(table)}}"
    form = number_format(table)
    low, high = pair.interval or (math.nan, math.nan)
    note = "; not the paper's setting" if pair.departs else ""
    ours = f"ours {pair.ours:+{form}} ({low:+{form}} to {high:+{form}})"
    return f"* {finding['text']}; {where}: {ours}{paper}{note}\n"


def _number(table: PaperTable, mean: float | None, std: float | None) -> str:
    if mean is None:
        return ""
    form = number_format(table)
    return f"{mean:{form}}" if std is None else f"{mean:{form}} ± {std:{form}}"


def number_format(table: PaperTable) -> str:
    """Return Python's format of a table's numbers."""
    if table.metric == "loss":
        return ".3g"
    return ".2f" if table.scale == 100 else ".4f"


def write(table: PaperTable, settings: Mapping[Keys, list[Ours]], folder: Path) -> Path:
    """Write ``<table>.md``; return its path."""
    target = folder / f"{table.name}.md"
    write_atomically(target, markdown(table, settings))
    return target


# A paper's tables as one HTML page: the generated pages below each other, with their figures.


def write_page(papers: list[str], target: Path) -> None:
    """Write a self-contained page with these papers' tables, which can be sorted.

    Raises
    ------
    UserError : if a paper does not exist, or no table has been made
    """
    parts = [_table(paper, name) for paper in papers for name in paper_tables.tables(paper)]
    body = "\n".join(filter(None, parts))
    if not body:
        raise UserError(f"no table of {', '.join(papers)} has been made yet: run one of them first")
    title = papers[0] if len(papers) == 1 else "The papers' tables"
    write_text(target, format_page(title, f"<h1>{title}</h1>\n{body}"))


def _table(paper: str, name: str) -> str:
    """Return a generated page as HTML, with its figure; empty if the table has not been made."""
    file = paper_tables.PAPERS / paper / "ours" / f"{name}.md"
    if not file.exists():
        return ""
    text = re.sub(r"^#", "##", file.read_text(encoding="utf-8"), flags=re.M)
    body = MarkdownIt("commonmark").enable("table").render(text)
    body = body.replace("<table>", '<div class="wide"><table class="sortable">')
    body = body.replace("</table>", "</table></div>")
    picture = file.with_suffix(".png")
    if picture.exists():
        data = b64encode(picture.read_bytes()).decode()
        body += f'<img alt="{paper}, {name}" src="data:image/png;base64,{data}">'
    return f"<section>{body}</section>"
