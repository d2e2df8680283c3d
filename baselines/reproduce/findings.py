"""Test a paper's findings, "A beats B", in each pair of cells by a paired test."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from baselines.reports.statistics import adjust_holm, is_tied

from .paper_tables import Cell, PaperTable, agrees, texts
from .results import Keys, Ours, has_lower_better

CONFIDENCE = 0.95
CONFIRMED, CONTRADICTED, UNDECIDED, NOT_RUN = "confirmed", "contradicted", "undecided", "not run"
VERDICTS = (CONFIRMED, CONTRADICTED, UNDECIDED, NOT_RUN)


@dataclass(frozen=True)
class Comparison:
    """One pair of cells that a finding compares.

    Parameters
    ----------
    keys : the keys that both cells share
    paper : how much better the better one is in the paper; None if a number is missing
    ours : the same for our runs; None if one has not been run
    interval : of our difference, with 95 % confidence; None with one seed, or without spread
    departs : whether ours were run in another setting than the paper's
    seeds : how many seeds both have; 0 if one has not been run
    seeded : whether the seed decides anything
    runs : the configurations of both; several tables with the same two count as one pair
    quantity : what is compared: of the same two runs, one table may use the best round, another the last
    or_equal : whether the finding includes equality
    points : factor from a difference to percentage points; None if it is not a share
    by_seed : the difference for each seed that both have
    ratio : of losses, the worse one divided by the better one; None otherwise
    label : distinguishes it from pairs of other tables with the same keys
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
        """Say whether the other pair has all runs of this one, and possibly more seeds."""
        if not (self.runs and other.runs) or self.quantity != other.quantity:
            return False
        return all(ours <= theirs for ours, theirs in zip(self.runs, other.runs, strict=True))

    @property
    def ahead(self) -> bool:
        """Whether the mean difference has the finding's sign, however small."""
        return self.ours is not None and (self.ours > 0 or (self.or_equal and self.ours == 0))

    @property
    def verdict(self) -> str:
        """Whether ours confirms or contradicts it; undecided if the interval includes zero."""
        return NOT_RUN if self.ours is None else decide(self.interval)

    @property
    def p_value(self) -> float | None:
        """The p value of the paired t-test; None without a test: on one seed, or if a run diverged."""
        differences = [*self.by_seed.values()]
        if not self.seeded or not np.isfinite(differences).all() or student_interval(differences) is None:
            return None
        return float(stats.ttest_1samp(differences, 0.0).pvalue)


def decide(interval: tuple[float, float] | None) -> str:
    """Return the verdict on a difference by its interval; undecided if a run diverged (NaN)."""
    low, high = interval or (-np.inf, np.inf)
    if low > 0:
        return CONFIRMED
    return CONTRADICTED if high < 0 else UNDECIDED


def comparisons(
    table: PaperTable, finding: Mapping[str, Any], settings: Mapping[Keys, Sequence[Ours]]
) -> Iterator[tuple[Comparison, ...]]:
    """Compare ours in every pair of cells of the finding.

    For each pair, first the comparison at the paper's setting (not run if one of the two is missing), then
    those at each further setting of both, those with the most rounds first.
    """
    if "below" in finding:
        yield from _levels(table, finding, settings)
        return
    column, cells, lower = finding["column"], table.cells(), has_lower_better(table)
    if "gain" in finding:
        cells, settings = _gains(table, finding["gain"], settings)
        lower = False
    for cell, other in _pairs(cells, finding):
        several = len(texts(finding["better"])) > 1
        rest = {key: text for key, text in cell.keys.items() if several or key != column}
        if len(texts(finding["worse"])) > 1:
            rest["against"] = other.keys[column]
        whole = Comparison(
            rest,
            _better(cell.paper_mean, other.paper_mean, lower),
            None,
            None,
            quantity=table.subject + ", gain" * ("gain" in finding),
            or_equal=finding.get("or_equal", False),
            points=table.points,
            label=table.label,
        )
        a, b = (
            {one.changes: one for one in settings.get(tuple(c.keys.values()), ())} for c in (cell, other)
        )
        further = (
            _run(table, whole, a[changes], b[changes], lower) for changes in a if changes and changes in b
        )
        first = _run(table, whole, a[""], b[""], lower) if "" in a and "" in b else whole
        ran = (first, *(one for one in further if one.ours is not None))
        yield ran if "within" not in finding else tuple(_inside(one, finding["within"]) for one in ran)


def _inside(pair: Comparison, margin: float) -> Comparison:
    """Return how far within the margin a pair's difference is, whichever of the two is better.

    The numbers are the margin less the difference in the direction of its mean, so that their interval lies
    above zero where that of the difference lies between -margin and margin (the nearer bound decides).
    """
    paper = None if pair.paper is None else margin - abs(pair.paper)
    if pair.ours is None:
        return replace(pair, paper=paper)
    inside, sign = margin - abs(pair.ours), 1 if pair.ours > 0 else -1
    by_seed = {seed: margin - sign * difference for seed, difference in pair.by_seed.items()}
    interval = student_interval([*by_seed.values()]) if pair.seeded else (inside, inside)
    return replace(pair, paper=paper, ours=inside, interval=interval, by_seed=by_seed, ratio=None)


def _levels(
    table: PaperTable, finding: Mapping[str, Any], settings: Mapping[Keys, Sequence[Ours]]
) -> Iterator[tuple[Comparison, ...]]:
    """Compare each cell of the finding with the number that it should lie below."""
    level = float(finding["below"])
    for cell in table.cells():
        if not agrees(cell.keys, finding.get("where", {})):
            continue
        paper = None if cell.paper_mean is None else level - cell.paper_mean
        whole = Comparison(dict(cell.keys), paper, None, None, quantity=table.subject, points=table.points)
        ran = [
            _run(table, whole, one, replace(one, by_seed=dict.fromkeys(one.by_seed, level)), lower=True)
            for one in settings.get(tuple(cell.keys.values()), ())
        ]
        first = [one for one in ran if not one.departs] or [whole]
        yield first[0], *(one for one in ran if one.departs)


def pairs(table: PaperTable) -> Iterator[tuple[Keys, Keys]]:
    """Yield the keys' values of every pair of cells that the table's findings compare."""
    for finding in table.findings:
        if "below" in finding:
            continue
        for better, worse in _pairs(table.cells(), finding.get("gain", finding)):
            yield tuple(better.keys.values()), tuple(worse.keys.values())


def _pairs(cells: Sequence[Cell], finding: Mapping[str, Any]) -> Iterator[tuple[Cell, Cell]]:
    """Yield every pair of cells that differ only in the finding's column, the better one first."""
    by_keys = {tuple(cell.keys.values()): cell for cell in cells}
    column = finding["column"]
    for cell in cells:
        if cell.keys[column] not in texts(finding["better"]) or not agrees(
            cell.keys, finding.get("where", {})
        ):
            continue
        for value in texts(finding["worse"]):
            other = by_keys.get(tuple({**cell.keys, column: value}.values()))
            if other is not None:
                yield cell, other


def _gains(
    table: PaperTable, gain: Mapping[str, Any], settings: Mapping[Keys, Sequence[Ours]]
) -> tuple[list[Cell], dict[Keys, list[Ours]]]:
    """Return a cell for each pair that ``gain`` compares; its numbers are the better one's gains.

    A finding on gains compares these: "the gain is larger where the data are not iid".
    """
    lower, cells, gains = has_lower_better(table), [], {}
    for cell, other in _pairs(table.cells(), gain):
        keys = {key: text for key, text in cell.keys.items() if key != gain["column"]}
        if len(texts(gain["worse"])) > 1:
            keys["against"] = other.keys[gain["column"]]
        cells.append(Cell(keys, (), _better(cell.paper_mean, other.paper_mean, lower)))
        a, b = (
            {one.changes: one for one in settings.get(tuple(c.keys.values()), ())} for c in (cell, other)
        )
        gains[tuple(keys.values())] = [
            replace(a[changes], by_seed=by_seed, configs=a[changes].configs | b[changes].configs)
            for changes in a
            if changes in b and (by_seed := _by_seed(a[changes], b[changes], lower))
        ]
    return cells, gains


def _better(one: float | None, other: float | None, lower: bool) -> float | None:
    """Return by how much one number is better than another; None if one is missing."""
    if one is None or other is None:
        return None
    return other - one if lower else one - other


def _by_seed(a: Ours, b: Ours, lower: bool) -> dict[int, float]:
    """Return by how much one is better than another for each seed that both have."""
    return {
        seed: b.by_seed[seed] - a.by_seed[seed] if lower else a.by_seed[seed] - b.by_seed[seed]
        for seed in sorted(a.by_seed.keys() & b.by_seed.keys())
    }


def _run(table: PaperTable, whole: Comparison, a: Ours, b: Ours, lower: bool) -> Comparison:
    """Return the comparison of the runs in one setting, over the seeds that both have."""
    by_seed = _by_seed(a, b, lower)
    if not by_seed:
        return whole
    differences = list(by_seed.values())
    mean = float(np.mean(differences))
    has_ratio = table.metric == "loss" and table.measure is None and a.mean > 0
    return replace(
        whole,
        ours=mean,
        interval=student_interval(differences) if a.seeded else (mean, mean),
        departs=bool(a.changes),
        seeds=len(by_seed),
        seeded=a.seeded,
        runs=(a.configs, b.configs),
        by_seed=by_seed,
        ratio=b.mean / a.mean if has_ratio else None,
    )


def corrected_verdicts(pairs: Sequence[Comparison]) -> list[str]:
    """Return each pair's verdict after Holm's correction for how many of them are tested.

    An untested pair keeps its verdict: it was not run, is undecided, or the seed decides nothing.
    """
    p_values = [pair.p_value for pair in pairs]
    adjusted = adjust_holm([np.nan if p is None else p for p in p_values])
    fails = adjusted >= 1 - CONFIDENCE  # False for NaN, which is not tested
    return [UNDECIDED if failed else pair.verdict for pair, failed in zip(pairs, fails, strict=True)]


def pooled_gains(pairs: Sequence[Comparison]) -> list[float]:
    """Return the gains for one test over all pairs, in percentage points, averaged over seeds.

    Pairs that share a run are not independent: their mean counts once. Empty if a pair has no points.
    """
    groups: list[tuple[set[str], list[float]]] = []
    for pair in pairs:
        if pair.points is None or pair.ours is None:
            return []
        runs, gains = set().union(*pair.runs), [pair.ours * pair.points]
        disjoint = []
        for group in groups:
            if runs & group[0]:
                runs |= group[0]
                gains += group[1]
            else:
                disjoint.append(group)
        groups = [*disjoint, (runs, gains)]
    return [float(np.mean(gains)) for _, gains in groups]


def student_interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's interval of the mean difference; None for a single one, or without spread."""
    if len(differences) < 2 or is_tied(differences):
        return None
    mean, degrees = float(np.mean(differences)), len(differences) - 1
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, degrees) * stats.sem(differences))
    return mean - half, mean + half
