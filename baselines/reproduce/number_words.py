"""What a page says of the numbers that an expression names (``page_numbers.py``).

(no form) : the one number, a mean over seeds
spread : the same, ± its standard deviation over seeds
seeds : "1 seed", "2 to 3 seeds"
range : the least and the greatest of several
average : the mean of several
deviations : the least and the greatest standard deviation over seeds
cells : "82 of 84": how many have been run
above : "4 of 8": how many of those that have been run are above zero, of differences
order : "26 of 27 (not F 50)": how many differences have the sign that the paper's have
apart : "1 of 5 (fedprox)": of how many the 95 % interval leaves out zero
within=0.5 : "70 of 82": how many are no further than this from zero
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from baselines.errors import UserError

from . import report
from .findings import student_interval
from .numbers import Ours
from .paper_tables import PaperTable
from .quoted import Quoted


@dataclass(frozen=True)
class Unit:
    """How a number is written.

    Parameters
    ----------
    factor : what it is multiplied by
    form : of Python's
    points : whether it counts percentage points
    signed : whether it is a difference, whose sign is said in words
    """

    factor: float
    form: str
    points: bool
    signed: bool

    def plain(self, value: float) -> str:
        """Return a number without its sign, where that is said in words."""
        scaled = self.factor * value
        return f"{abs(scaled) if self.signed else scaled:{self.form}}"

    def sign(self, value: float) -> int:
        """Return 1, -1, or 0 for a number that is written as zero."""
        return 0 if self.plain(abs(value)) == self.plain(0) else 1 if value > 0 else -1

    def told(self, value: float) -> str:
        """Return a number; of a difference with the word for its sign."""
        if not self.signed:
            return self.plain(value)
        if not (sign := self.sign(value)):
            return "level with"
        return f"{self.plain(value)}{' points' * self.points} {'above' if sign > 0 else 'below'}"


Say = Callable[[Sequence[Quoted], Unit], str]


def unit_of(table: PaperTable, operator: str, form: str) -> Unit:
    """Return how a table's numbers are written, their differences or ratios; accuracies in per cent."""
    if operator == "/":
        return Unit(1, form or ".2g", False, False)
    percent = table.metric == "accuracy"
    usual = ".2f" if percent else report.number_format(table)
    return Unit(100 / table.scale if percent else 1, form or usual, percent, operator == "-")


def form_named(word: str) -> Say | None:
    """Return what a form's name stands for; None for a word that names none."""
    name, _, bound = word.partition("=")
    if name == "within":
        return partial(within, float(bound))
    return FORMS.get(word)


def mean(found: Sequence[Quoted], unit: Unit) -> str:
    """Return the one number."""
    return unit.told(_one(found).mean)


def spread(found: Sequence[Quoted], unit: Unit) -> str:
    """Return the one number and its standard deviation."""
    one = _one(found)
    return unit.told(one.mean) if one.std is None else f"{unit.told(one.mean)} ± {unit.plain(one.std)}"


def seeds(found: Sequence[Quoted], unit: Unit) -> str:
    """Return on how many seeds the numbers stand."""
    counts = [len(one.by_seed) for one in _run(found)]
    most = max(counts)
    return f"{min(counts)} to {most} seeds" if min(counts) < most else f"{most} seed{'s' * (most > 1)}"


def span(found: Sequence[Quoted], unit: Unit) -> str:
    """Return the least and the greatest; of differences with one sign that nearest to zero first."""
    values = [one.mean if unit.sign(one.mean) else 0.0 for one in _run(found)]
    one_side = unit.signed and min(values) * max(values) >= 0
    ordered = sorted(values, key=lambda value: abs(value) if one_side else value)
    first, last = unit.told(ordered[0]), unit.told(ordered[-1])
    if first == last:
        return last
    return f"{unit.plain(ordered[0]) if one_side else first} to {last}"


def average(found: Sequence[Quoted], unit: Unit) -> str:
    """Return the mean of the numbers."""
    return unit.told(float(np.mean([one.mean for one in _run(found)])))


def deviations(found: Sequence[Quoted], unit: Unit) -> str:
    """Return the least and the greatest standard deviation over seeds."""
    known = sorted(one.std for one in _run(found) if one.std is not None)
    if not known:
        raise UserError("none of these has several seeds")
    return f"{unit.plain(known[0])} to {unit.plain(known[-1])}"


def cells(found: Sequence[Quoted], unit: Unit) -> str:
    """Return how many have been run."""
    return _count([one.ours is not None for one in found])


def above(found: Sequence[Quoted], unit: Unit) -> str:
    """Return how many are above zero."""
    return _count([unit.sign(one.mean) > 0 for one in _run(found)])


def order(found: Sequence[Quoted], unit: Unit) -> str:
    """Return how many have the sign of the paper's, and which have not."""
    both = [(one.name, one.ours.mean, one.paper) for one in found if one.ours and one.paper is not None]
    holds = [unit.sign(ours) == unit.sign(paper) for _, ours, paper in both]
    others = [name for (name, *_), as_printed in zip(both, holds, strict=True) if not as_printed]
    return _count(holds) + f" (not {', '.join(others)})" * bool(others)


def apart(found: Sequence[Quoted], unit: Unit) -> str:
    """Return of how many the interval leaves out zero, and of which where it is some of them."""
    run = [(one.name, student_interval([*one.ours.by_seed.values()])) for one in found if one.ours]
    names = [name for name, ends in run if ends and (ends[0] > 0 or ends[1] < 0)]
    which = f" ({', '.join(names)})" if 0 < len(names) < len(run) else ""
    return _count([name in names for name, _ in run]) + which


def within(bound: float, found: Sequence[Quoted], unit: Unit) -> str:
    """Return how many are no further from zero than ``bound``, in the unit that is written."""
    return _count([abs(unit.factor * one.mean) <= bound for one in _run(found)])


FORMS: dict[str, Say] = {
    **{one.__name__: one for one in (spread, seeds, average, deviations, cells, above, order, apart)},
    "range": span,
}


def _count(holds: Sequence[bool]) -> str:
    return f"{sum(map(bool, holds))} of {len(holds)}"


def _run(found: Sequence[Quoted]) -> list[Ours]:
    """Return those that have been run.

    Raises
    ------
    UserError : when none has
    """
    run = [one.ours for one in found if one.ours is not None]
    if not run:
        raise UserError("it has not been run, or not with the same seeds and changes")
    return run


def _one(found: Sequence[Quoted]) -> Ours:
    """Return the one number; ``UserError`` where there are several cells."""
    if len(found) > 1:
        raise UserError(f"it names {len(found)} cells; name one, or say range or average")
    return _run(found)[0]
