"""The paper's findings: A beats B. Does ours agree, pair of cells by pair of cells?"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .collect import less_is_better
from .numbers import Ours, Results
from .paper_tables import Cell, PaperTable, agrees, texts

VERDICTS = ("agrees", "disagrees", "cannot tell", "missing")


@dataclass(frozen=True)
class Comparison:
    """One pair of cells that a finding speaks of.

    Parameters
    ----------
    keys : what both have in common
    paper : how much better the better one is in the paper; None where a number is missing
    ours : the same with us; None where one has not been run, or they were run in different settings
    spread : sqrt(s_A^2 + s_B^2) over the seeds; None with a single seed of either
    departs : whether ours were run in another setting than the paper's
    seeds : on how many seeds the one of the two with fewer stands; 0 where one has not been run
    """

    keys: dict[str, str]
    paper: float | None
    ours: float | None
    spread: float | None
    departs: bool = False
    seeds: int = 0

    @property
    def verdict(self) -> str:
        """Whether ours agrees, disagrees, or cannot tell within the spread."""
        if self.ours is None:
            return "missing"
        if self.spread is None or not abs(self.ours) > self.spread:  # not: of what has diverged, too
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
    seeds = min(len(a.values), len(b.values))
    return Comparison(keys, paper, sign * (a.mean - b.mean), spread, bool(a.changes), seeds)
