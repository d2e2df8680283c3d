"""The paper's findings: A beats B. Is each confirmed, pair of cells by pair of cells, by a paired test?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from baselines.reports.statistics import tied

from .paper_tables import Cell, PaperTable, agrees, texts
from .results import Keys, Ours, less_is_better

CONFIDENCE = 0.95
CONFIRMED, CONTRADICTED, UNDECIDED, NOT_RUN = "confirmed", "contradicted", "undecided", "not run"
VERDICTS = (CONFIRMED, CONTRADICTED, UNDECIDED, NOT_RUN)


@dataclass(frozen=True)
class Comparison:
    """One pair of cells that a finding speaks of.

    Parameters
    ----------
    keys : what both have in common
    paper : how much better the better one is in the paper; None where a number is missing
    ours : the same with us; None where one has not been run
    interval : of ours, with 95 % confidence; None where there is one seed, or no spread
    departs : whether ours were run in another setting than the paper's
    seeds : how many both were run with; 0 where one has not been run
    seeded : whether the seed decides anything
    runs : the configurations of both; a pair of them that is in several tables is one pair
    quantity : what is compared: of the same two runs, one table may have the best round, another the last
    or_equal : whether the finding holds of equals, too
    points : what to multiply a difference by for percentage points; None where it is no share
    by_seed : the difference of each seed that both have
    ratio : of a loss, how many times the worse one is the better one; None elsewhere
    label : what tells it from pairs of other tables, where its keys do not
    """

    keys: dict[str, str]
    paper: float | None
    ours: float | None
    interval: tuple[float, float] | None
    departs: bool = False
    seeds: int = 0
    seeded: bool = True
    runs: tuple[frozenset[str], ...] = ()
    quantity: str = ""
    or_equal: bool = False
    points: float | None = None
    by_seed: Mapping[int, float] = field(default_factory=dict)
    ratio: float | None = None
    label: str = ""

    def is_in(self, other: "Comparison") -> bool:
        """Say whether the other pair has all the runs of this one, and maybe more seeds of them."""
        if not (self.runs and other.runs) or self.quantity != other.quantity:
            return False
        return all(ours <= theirs for ours, theirs in zip(self.runs, other.runs, strict=True))

    @property
    def ahead(self) -> bool:
        """Whether the mean difference is as the finding says, however small."""
        return self.ours is not None and (self.ours > 0 or (self.or_equal and self.ours == 0))

    @property
    def verdict(self) -> str:
        """Whether ours confirms or contradicts it, or zero is in the interval."""
        return NOT_RUN if self.ours is None else decide(self.interval)


def decide(interval: tuple[float, float] | None) -> str:
    """Return the verdict on a difference by its interval; of one that has diverged (NaN): undecided."""
    low, high = interval or (-np.inf, np.inf)
    if low > 0:
        return CONFIRMED
    return CONTRADICTED if high < 0 else UNDECIDED


def comparisons(
    table: PaperTable, finding: Mapping[str, Any], settings: Mapping[Keys, Sequence[Ours]]
) -> Iterator[tuple[Comparison, ...]]:
    """Compare ours in every pair of cells that the finding speaks of.

    Each pair once at the paper's setting, not run where one of the two has not been; then in
    each further setting that both were run in, those with the most rounds first.
    """
    column = finding["column"]
    for cell, other in _pairs(table, finding):
        a, b = (
            {one.changes: one for one in settings.get(tuple(c.keys.values()), ())} for c in (cell, other)
        )
        several = len(texts(finding["better"])) > 1
        rest = {key: text for key, text in cell.keys.items() if several or key != column}
        if len(texts(finding["worse"])) > 1:
            rest["against"] = other.keys[column]
        printed = None
        if cell.paper_mean is not None and other.paper_mean is not None:
            printed = _better(table, cell.paper_mean, other.paper_mean)
        whole = Comparison(
            rest,
            printed,
            None,
            None,
            quantity=table.subject,
            or_equal=finding.get("or_equal", False),
            points=table.points,
            label=table.label,
        )
        further = (_run(table, whole, a[changes], b[changes]) for changes in a if changes and changes in b)
        first = _run(table, whole, a[""], b[""]) if "" in a and "" in b else whole
        yield first, *(one for one in further if one.ours is not None)


def pairs(table: PaperTable) -> Iterator[tuple[Keys, Keys]]:
    """Yield the values of the keys of every pair of cells that a finding of the table compares."""
    for finding in table.findings:
        for better, worse in _pairs(table, finding):
            yield tuple(better.keys.values()), tuple(worse.keys.values())


def _pairs(table: PaperTable, finding: Mapping[str, Any]) -> Iterator[tuple[Cell, Cell]]:
    """Yield every pair of cells that differ in the finding's column alone, the better one first."""
    cells = {tuple(cell.keys.values()): cell for cell in table.cells()}
    column = finding["column"]
    for cell in cells.values():
        if cell.keys[column] not in texts(finding["better"]) or not agrees(
            cell.keys, finding.get("where", {})
        ):
            continue
        for value in texts(finding["worse"]):
            other = cells.get(tuple({**cell.keys, column: value}.values()))
            if other is not None:
                yield cell, other


def _better(table: PaperTable, one: float, other: float) -> float:
    """Return by how much one number is better than another."""
    return other - one if less_is_better(table) else one - other


def _run(table: PaperTable, whole: Comparison, a: Ours, b: Ours) -> Comparison:
    """Return the comparison with what was run in one setting, of the seeds that both have."""
    both = sorted(a.by_seed.keys() & b.by_seed.keys())
    if not both:
        return whole
    by_seed = {seed: _better(table, a.by_seed[seed], b.by_seed[seed]) for seed in both}
    differences = list(by_seed.values())
    mean = float(np.mean(differences))
    return replace(
        whole,
        ours=mean,
        interval=student_interval(differences) if a.seeded else (mean, mean),
        departs=bool(a.changes),
        seeds=len(both),
        seeded=a.seeded,
        runs=(a.configs, b.configs),
        by_seed=by_seed,
        ratio=b.mean / a.mean if table.metric == "loss" and table.measure is None and a.mean > 0 else None,
    )


def student_interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's interval of the mean difference; None of one, and of equal ones without spread."""
    if len(differences) < 2 or tied(differences):
        return None
    mean, degrees = float(np.mean(differences)), len(differences) - 1
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, degrees) * stats.sem(differences))
    return mean - half, mean + half
