"""Budget: which of the missing runs tell most in the time that there is.

A finding is a comparison of two cells; it says something once both have a run, and more with each further
seed. The runs that complete a pair of cells cheaply come first, those of cells that no finding speaks of
last. What does not fit as a whole comes after all that does: it is begun, and goes on another time.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from baselines.errors import UserError

from .findings import pairs
from .paper_tables import PaperTable
from .plan import Trial

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Bundle:
    """Runs that tell something together.

    Parameters
    ----------
    paired : whether they complete a pair of cells that a finding compares
    seed : the how manieth seed of their cells they complete, from 1
    trials : those that are missing
    """

    paired: bool
    seed: int
    trials: tuple[Trial, ...]


def seconds_in(text: str) -> float:
    """Return the seconds of a time such as 90s, 40m or 1.5h.

    Raises
    ------
    UserError : for any other text
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if found is None or float(found[1]) == 0:
        raise UserError(f"--budget {text}: expected a time such as 90s, 40m or 1.5h")
    return float(found[1]) * SECONDS[found[2]]


def most_telling(
    table: PaperTable,
    trials: Sequence[Trial],
    missing: Sequence[Trial],
    cost: Callable[[Trial], float],
    budget: float,
) -> tuple[list[Trial], int]:
    """Return the missing trials, the most telling first, and how many of them fit the budget.

    Parameters
    ----------
    trials : all that are planned, with those that are finished
    cost : seconds that a trial takes
    budget : seconds, of all jobs together
    """
    left, ordered, fitting = budget, list[Trial](), 0
    absent = {trial.folder.name: trial for trial in missing}
    costs = {name: cost(trial) for name, trial in absent.items()}
    bundles = list(_bundles(table, trials))
    while absent:
        best, worth, price = list[str](), (False, False, -1.0), 0.0
        for bundle in bundles:
            names = {trial.folder.name for trial in bundle.trials} & absent.keys()
            total = sum(costs[name] for name in names)
            this = (total <= left, bundle.paired, 1 / (bundle.seed * (total or 1.0)))
            if names and this > worth:
                best, worth, price = sorted(names), this, total
        ordered += [absent.pop(name) for name in best]
        left -= price
        fitting += len(best) * worth[0]
    return ordered, fitting


def _bundles(table: PaperTable, trials: Sequence[Trial]) -> Iterator[Bundle]:
    """Yield for each pair of cells, and for each cell, its first seed, its first two, and so on."""
    by_cell: dict[tuple[str, ...], list[Trial]] = {}
    for trial in trials:
        by_cell.setdefault(tuple(trial.cell.keys.values()), []).append(trial)
    for better, worse in pairs(table):
        a, b = by_cell.get(better, []), by_cell.get(worse, [])
        for count in range(1, min(len(a), len(b)) + 1):
            yield Bundle(True, count, (*a[:count], *b[:count]))
    for own in by_cell.values():
        for count in range(1, len(own) + 1):
            yield Bundle(False, count, tuple(own[:count]))
