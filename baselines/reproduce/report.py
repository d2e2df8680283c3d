"""Paper beside ours as Markdown: the cells with their means, spreads and differences, and the findings."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from baselines.cells import Cell, PaperTable

from .findings import VERDICTS, Comparison, comparisons
from .numbers import Ours, Results

EXPLAINED = """A finding is compared in each pair of cells that it speaks of. "Cannot tell": the difference
of the means is within the spread, the root of the sum of both variances over seeds, or the spread is not
known, of a single seed. "Ahead": in so many of the pairs that were run the difference has the finding's
sign.

"""


def markdown(table: PaperTable, results: Results) -> str:
    """Return the table, and the findings below it."""
    told = f"{subject(table)}; generated, mean ± standard deviation over seeds."
    parts = [_cells(table, results), *_findings(table, results)]
    return f"# {table.paper}, {table.name}\n\n{told}\n\n{''.join(parts)}"


def subject(table: PaperTable) -> str:
    """Return what the table's numbers are."""
    if table.measure is not None:
        return table.measure.rpartition(".")[2].replace("_", " ")
    over = {"last": "last round", "best": "best round", "last10": "mean of the last ten rounds"}
    return f"{table.quantity}, {over[table.reduction]}"


def _cells(table: PaperTable, results: Results) -> str:
    cells = table.cells()
    printed = any(cell.paper_mean is not None for cell in cells)
    headings = [*table.keys, *(["paper"] if printed else []), "ours", "seeds"]
    headings += [*(["difference"] if printed else []), "note"]
    lines = [headings, ["---"] * len(headings)]
    for cell in cells:
        found = results.get(tuple(cell.keys.values()))
        paper = [_number(table, cell.paper_mean, cell.paper_std)] if printed else []
        lines.append([*cell.keys.values(), *paper, *_ours(table, cell, found, printed)])
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    command = f"python -m baselines.reproduce {table.paper} {table.name}"
    empty = f"\nAn empty row is filled by `{command}` with the `--where` that it shows.\n"
    return text + (empty if len(results) < len(cells) else "")


def _ours(table: PaperTable, cell: Cell, found: Ours | None, printed: bool) -> list[str]:
    """Return our part of a row; of an empty one the selection that fills it."""
    if found is None:
        where = ",".join(f"{key}={value}" for key, value in cell.keys.items())
        return ["", "", *([""] if printed else []), f"`--where {where}`"]
    ahead = None if cell.paper_mean is None else found.mean - cell.paper_mean
    difference = "" if ahead is None else f"{ahead:+{_form(table)}}"
    numbers = [_number(table, found.mean, found.std), str(len(found.values))]
    return [*numbers, *([difference] if printed else []), found.note]


def _findings(table: PaperTable, results: Results) -> Iterator[str]:
    if not table.findings:
        return
    yield "\n## Findings\n\n"
    yield EXPLAINED
    headings = ["finding", "in the paper", *VERDICTS, "ahead"]
    yield from (f"| {' | '.join(line)} |\n" for line in (headings, ["---"] * len(headings)))
    details: list[str] = []
    for finding in table.findings:
        pairs = list(comparisons(table, finding, results))
        printed = [pair.paper for pair in pairs if pair.paper is not None]
        holds = f"{sum(d > 0 for d in printed)} of {len(printed)}" if printed else ""
        run = [pair.ours for pair in pairs if pair.ours is not None]
        counts = [str(sum(pair.verdict == verdict for pair in pairs)) for verdict in VERDICTS]
        ahead = f"{sum(d > 0 for d in run)} of {len(run)}" if run else ""
        yield f"| {' | '.join([finding['text'], holds, *counts, ahead])} |\n"
        details += [_detail(table, finding, pair) for pair in pairs if pair.verdict == "disagrees"]
    if details:
        yield "\nWhere ours disagrees:\n\n" + "".join(details)


def _detail(table: PaperTable, finding: Mapping[str, Any], pair: Comparison) -> str:
    where = ", ".join(f"{key} {value}" for key, value in pair.keys.items())
    paper = "" if pair.paper is None else f", paper {pair.paper:+{_form(table)}}"
    form = _form(table)
    return f"* {finding['text']}; {where}: ours {pair.ours:+{form}} ± {pair.spread:{form}}{paper}\n"


def _number(table: PaperTable, mean: float | None, std: float | None) -> str:
    if mean is None:
        return ""
    form = _form(table)
    return f"{mean:{form}}" if std is None else f"{mean:{form}} ± {std:{form}}"


def _form(table: PaperTable) -> str:
    if table.metric == "loss":
        return ".3g"
    return ".2f" if table.scale == 100 else ".4f"


def write(table: PaperTable, results: Results, folder: Path) -> Path:
    """Write ``<table>.md``; return its path."""
    target = folder / f"{table.name}.md"
    target.write_text(markdown(table, results), encoding="utf-8")
    return target
