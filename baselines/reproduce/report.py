"""Paper beside ours: the cells with their means, spreads and differences, and the paper's findings.

Of a cell's rows those at the paper's own setting count; where there are none, those that depart from it in
the same way and have the most rounds, and the departure is printed with them.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from baselines.cells import Cell, PaperTable, agrees, texts

from .collect import less_is_better

VERDICTS = ("agrees", "disagrees", "cannot tell", "missing")
EXPLAINED = """A finding is compared in each pair of cells that it speaks of. "Cannot tell": the difference
of the means is within the spread, the root of the sum of both variances over seeds, or the spread is not
known, of a single seed. "Ahead": in so many of the pairs that were run the difference has the finding's
sign.

"""


@dataclass(frozen=True)
class Ours:
    """Our number for one cell.

    Parameters
    ----------
    values : one per seed
    changes : in what it departs from the paper's setting; empty where it does not
    earlier : whether it was measured under a configuration that the cell no longer has
    seeded : whether the seed decides anything
    """

    values: tuple[float, ...]
    changes: str
    earlier: bool = False
    seeded: bool = True

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return sum(self.values) / len(self.values)

    @property
    def std(self) -> float | None:
        """The standard deviation over the seeds; None of a single one."""
        return float(pd.Series(self.values).std()) if len(self.values) > 1 else None

    @property
    def spread(self) -> float | None:
        """The same; 0 of a single seed that decides nothing."""
        return self.std if self.seeded else self.std or 0.0

    @property
    def note(self) -> str:
        """What a reader must be told beside the number."""
        reduced = f"not the paper's setting: {self.changes}" if self.changes else ""
        return "; ".join(filter(None, [reduced, "of an earlier configuration" if self.earlier else ""]))


Results = dict[tuple[str, ...], Ours]


def ours(table: PaperTable, rows: pd.DataFrame, configs: Mapping[tuple[str, ...], set[str]]) -> Results:
    """Return our numbers by the values of the cells' keys.

    ``configs`` are the hashes of the configurations that a cell has now, of those cells that are planned.
    """
    found: Results = {}
    if rows.empty:
        return found
    for values, own in rows.groupby(list(table.keys), sort=False):
        keys = tuple(map(str, values))
        now = configs.get(keys, set())
        own = own.assign(
            earlier=~own.config.isin(now) & bool(now) & (own.changes == ""),
            rounds=own.rounds.astype(int),
            departs=own.changes != "",
        )
        first = own.sort_values(["earlier", "departs", "rounds"], ascending=[True, True, False]).iloc[0]
        chosen = own[(own.changes == first.changes) & (own.earlier == first.earlier)]
        numbers = tuple(chosen.value.astype(float))
        found[keys] = Ours(numbers, str(first.changes), bool(first.earlier), table.seeded)
    return found


# ---- the paper's findings --------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """One pair of cells that a finding speaks of.

    Parameters
    ----------
    keys : what both have in common
    paper : how much better the better one is in the paper; None where a number is missing
    ours : the same with us; None where one has not been run, or they were run in different settings
    spread : sqrt(s_A^2 + s_B^2) over the seeds; None with a single seed of either
    """

    keys: dict[str, str]
    paper: float | None
    ours: float | None
    spread: float | None

    @property
    def verdict(self) -> str:
        """Whether ours agrees, disagrees, or cannot tell within the spread."""
        if self.ours is None:
            return "missing"
        if self.spread is None or abs(self.ours) <= self.spread:
            return "cannot tell"
        return "agrees" if self.ours > 0 else "disagrees"


def comparisons(table: PaperTable, finding: Mapping[str, Any], results: Results) -> Iterator[Comparison]:
    """Yield every pair of cells that differ in the finding's column alone."""
    cells = {tuple(cell.keys.values()): cell for cell in table.cells()}
    column, sign = finding["column"], -1 if less_is_better(table) else 1
    for cell in cells.values():
        if cell.keys[column] != str(finding["better"]) or not agrees(cell.keys, finding.get("where", {})):
            continue
        for value in texts(finding["worse"]):
            other = cells.get(tuple({**cell.keys, column: value}.values()))
            if other is None:
                continue
            a, b = (results.get(tuple(one.keys.values())) for one in (cell, other))
            rest = {key: text for key, text in cell.keys.items() if key != column}
            if len(texts(finding["worse"])) > 1:
                rest["against"] = value
            yield _compared(rest, sign, (cell, other), (a, b))


def _compared(
    keys: dict[str, str], sign: int, cells: tuple[Cell, Cell], found: tuple[Ours | None, Ours | None]
) -> Comparison:
    (better, worse), (a, b) = cells, found
    paper = None
    if better.paper_mean is not None and worse.paper_mean is not None:
        paper = sign * (better.paper_mean - worse.paper_mean)
    if a is None or b is None or a.changes != b.changes:
        return Comparison(keys, paper, None, None)
    spread = None if a.spread is None or b.spread is None else math.hypot(a.spread, b.spread)
    return Comparison(keys, paper, sign * (a.mean - b.mean), spread)


# ---- Markdown --------------------------------------------------------------------------------------


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
    return f"{table.split} {table.metric}, {over[table.reduction]}"


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
