"""Which numbers an expression on a page names (``page_numbers.py``).

    table4_4 fmnist dominant_labels method=fedadam,fedyogi gma - average

``[COLUMN=]VALUE[,VALUE]`` : values of a column of the table, which is named where several have such values
``round=N`` : that round of the curve, in place of the table's number; only some rounds are kept
``seed=N`` : that seed alone
any other ``KEY=VALUE`` : an override in which a number departs from the paper's setting. Of a cell's
    numbers that have all of these the one with the fewest changes counts; without any, the table's own

Behind ``-`` or ``/`` stand the values in which the second cell differs; all else is as in the first.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import sub, truediv
from pathlib import Path

import numpy as np

from baselines.engine.environment import write_atomically
from baselines.errors import UserError

from . import paper_tables, report, results
from .findings import student_interval
from .paper_tables import Cell, PaperTable
from .plan import table_of
from .results import Keys, Ours

OPERATORS: dict[str, Callable[[float, float], float]] = {"-": sub, "/": truediv}


@dataclass(frozen=True)
class Quoted:
    """One number, or the difference or the ratio of two.

    Parameters
    ----------
    name : the cell's values in the columns in which the expression's cells differ
    ours : by seed; None where it has not been run, or two were not run alike
    paper : the same of the printed numbers; None where one is missing
    """

    ours: Ours | None
    paper: float | None
    name: str = ""


@dataclass(frozen=True)
class Side:
    """What an expression says of a cell: values by column, changes, and which rows count (round, seed)."""

    keys: Mapping[str, list[str]]
    changes: frozenset[str]
    only: frozenset[tuple[str, str]]


Cells = Mapping[Keys, tuple[Cell, list[Ours]]]  # each with its numbers, the one that counts first
Read = Callable[[str, str, frozenset[tuple[str, str]]], Cells]


def read_cells(paper: str, name: str, only: frozenset[tuple[str, str]]) -> Cells:
    """Return a table's cells by the values of their keys, of a round of its curves, or of one seed."""
    folder = paper_tables.PAPERS / paper / "ours"
    rows = results.read(folder / f"{name}{'_curves' * ('round' in dict(only))}.csv")
    for column, value in only:
        rows = rows if rows.empty else rows[rows[column] == value]
    if "round" in rows:
        rows = rows.rename(columns={"round": "rounds"}).assign(config="")
    table = table_of(paper, name)
    found = results.settings(table, rows, {})
    return {keys: (cell, found.get(keys, [])) for cell in table.cells() for keys in [_keys(cell.keys)]}


def numbers_of(
    table: PaperTable, words: Sequence[str], read: Read, *, printed: bool
) -> tuple[list[Quoted], str]:
    """Return the numbers, one for each cell that agrees, and the operator between two of them or nothing.

    Parameters
    ----------
    words : of the expression, behind the table's name
    read : ``read_cells``, or what remembers them
    printed : whether the paper's numbers are wanted in place of ours

    Raises
    ------
    UserError : for a key or a value that the table does not have, and when no cell agrees
    """
    place = next((i for i, word in enumerate(words) if word in OPERATORS), len(words))
    operator, rest = "".join(words[place : place + 1]), words[place + 1 :]
    side = _side(table, words[:place])
    there = read(table.paper, table.name, side.only)
    cells = [cell for cell, _ in there.values() if paper_tables.agrees(cell.keys, side.keys)]
    if not cells:
        raise UserError(f"no cell of {table.name} has all of these")
    ones = [_of(there, cell.keys, side.changes) for cell in cells]
    if operator and list(rest) == ["paper"]:
        ones = [_both(OPERATORS[operator], one, _printed(one)) for one in ones]
    elif operator:
        other = _side(table, rest)
        if other.only:
            raise UserError(f"round and seed are the same of both: name them before {operator}")
        ones = [_compared(there, cell, side, other, OPERATORS[operator]) for cell in cells]
    differing = [column for column in table.keys if len({cell.keys[column] for cell in cells}) > 1]
    names = [" ".join(cell.keys[column] for column in differing) for cell in cells]
    shown = [_printed(one) if printed else one for one in ones]
    return [replace(one, name=name) for one, name in zip(shown, names, strict=True)], operator


def _side(table: PaperTable, words: Sequence[str]) -> Side:
    keys: dict[str, list[str]] = {}
    changes: set[str] = set()
    only: set[tuple[str, str]] = set()
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            key, value = _column(table, word), word
        if key in table.keys:
            keys[key] = value.split(",")
        elif key in ("round", "seed"):
            only.add((key, value))
        else:
            changes.add(word)
    return Side(keys, frozenset(changes), frozenset(only))


def _column(table: PaperTable, word: str) -> str:
    """Return the column that has these values; ``UserError`` where it is not one."""
    having = [column for column, values in table.keys.items() if set(word.split(",")) <= values.keys()]
    if len(having) != 1:
        which = " and ".join(having) or f"no column of {table.name}"
        raise UserError(f"{word} is of {which}: expected COLUMN=VALUE, columns are {', '.join(table.keys)}")
    return having[0]


def _keys(values: Mapping[str, str]) -> Keys:
    return tuple(values.values())


def _compared(
    there: Cells, cell: Cell, first: Side, second: Side, operator: Callable[[float, float], float]
) -> Quoted:
    """Return a cell's number beside that of the cell that differs from it as ``second`` says."""
    other = dict(cell.keys) | {key: ",".join(values) for key, values in second.keys.items()}
    a = _of(there, cell.keys, first.changes)
    b = _of(there, other, second.changes or first.changes)
    if not second.changes and a.ours and b.ours and a.ours.changes != b.ours.changes:
        b = replace(b, ours=None)  # not run alike
    return _both(operator, a, b)


def _of(there: Cells, keys: Mapping[str, str], changes: frozenset[str]) -> Quoted:
    """Return a cell's number, with the fewest changes among those that have these.

    Raises
    ------
    UserError : for a cell that is not there, and when two of its numbers have as few changes
    """
    if _keys(keys) not in there:
        raise UserError(f"there is no cell {' '.join(keys.values())}")
    cell, settings = there[_keys(keys)]
    fitting = [one for one in settings if changes <= set(shlex.split(one.changes))]
    if changes:
        fewest = min((len(shlex.split(one.changes)) for one in fitting), default=0)
        fitting = [one for one in fitting if len(shlex.split(one.changes)) == fewest]
        if len(fitting) > 1:
            raise UserError(f"several numbers fit: {'; '.join(one.changes for one in fitting)}")
    return Quoted(next(iter(fitting), None), cell.paper_mean)


def _printed(one: Quoted) -> Quoted:
    """Return the printed number in the place of ours."""
    if one.paper is None:
        return Quoted(None, None)
    seeds = one.ours.by_seed if one.ours else (0,)
    return Quoted(Ours(dict.fromkeys(seeds, one.paper), ""), one.paper)


def _both(operator: Callable[[float, float], float], a: Quoted, b: Quoted) -> Quoted:
    """Return the difference or the ratio of two numbers, seed by seed."""
    paper = None if a.paper is None or b.paper is None else operator(a.paper, b.paper)
    if a.ours is None or b.ours is None:
        return Quoted(None, paper)
    first, second = a.ours.by_seed, b.ours.by_seed
    by_seed = {seed: operator(first[seed], second[seed]) for seed in first if seed in second}
    return Quoted(replace(a.ours, by_seed=by_seed) if by_seed else None, paper)


# What a page says of the numbers that an expression names (``page_numbers.py``).
#
# (no form) : the one number, a mean over seeds
# spread : the same, ± its standard deviation over seeds
# seeds : "1 seed", "2 to 3 seeds"
# range : the least and the greatest of several
# average : the mean of several
# deviations : the least and the greatest standard deviation over seeds
# cells : "82 of 84": how many have been run
# above : "4 of 8": how many of those that have been run are above zero, of differences
# order : "26 of 27 (not F 50)": how many differences have the sign that the paper's have
# apart : "1 of 5 (fedprox)": of how many the 95 % interval leaves out zero
# within=0.5 : "70 of 82": how many are no further than this from zero


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


# The numbers in a page's prose: computed from the tables, never typed.
#
#     masking is <!--= section4_5 iid gma - average -->0.07 points above<!--/--> averaging
#
# The two comments do not show; what stands between them is generated from the expression in the first:
#
#     [paper] [FORM] TABLE [VALUE[,VALUE] ...] [- VALUE ... | - paper | / VALUE ...] [:FORMAT]
#
# TABLE VALUE ... : the cells that have these values, see ``quoted.py``; accuracies are always in per cent
# - VALUE ... : the difference from the cell that has these values instead, over the seeds that both have:
#     "1.20 points above", "0.30 points below" or "level with"; ``- paper``: from the printed number
# / VALUE ... : how many times as much as that cell
# FORM : what is said of these numbers, see ``number_words.py``; without one it is the mean of a single
# number
# paper : the printed numbers in place of ours
# FORMAT : Python's, such as ``:.1f``; without one as in the tables


MARKED = re.compile(r"<!--= (.+?) -->(.*?)<!--/-->", re.S)
AT_A_LINES_START = re.compile(r"^\s*(?:[*+-]|\d+\.)?\s*<!--=", re.M)


def evaluate_expression(paper: str, expression: str, read: Read = read_cells) -> str:
    """Return what an expression stands for; ``read`` reads the tables.

    Raises
    ------
    UserError : where it names no cell, or more than one, or cannot be read
    """
    words = expression.split()
    form = words.pop()[1:] if words[-1:] and words[-1].startswith(":") else ""
    printed = words[:1] == ["paper"]
    words = words[printed:]
    say = form_named(words[0]) if words else None
    words = words[say is not None :]
    if not words:
        raise UserError("it names no table")
    table = table_of(paper, words[0])
    found, operator = numbers_of(table, words[1:], read, printed=printed)
    unit = unit_of(table, operator, form)
    return (say or mean)(found, unit)


def renew_text(text: str, paper: str) -> str:
    """Return a page's text with every number as the tables have it.

    Raises
    ------
    UserError : for an expression that cannot be computed; it begins with the expression
    """
    if text.count("<!--=") != len(MARKED.findall(text)) or text.count("<!--/-->") != text.count("<!--="):
        raise UserError("a number has only one of its two comments, <!--= EXPRESSION --> and <!--/-->")
    if AT_A_LINES_START.search(text):
        raise UserError("a number begins a line, where Markdown takes its comment for HTML: move it on")

    read = cache(read_cells)  # each table once

    def fresh(match: re.Match[str]) -> str:
        try:
            return f"<!--= {match[1]} -->{evaluate_expression(paper, match[1], read)}<!--/-->"
        except (UserError, ValueError, ZeroDivisionError) as error:  # what Python's format says, too
            raise UserError(f"{match[1]}: {error}") from error

    return MARKED.sub(fresh, text)


def renew_page(path: Path, paper: str) -> None:
    """Renew the numbers in a paper's page; without such a file nothing happens.

    Raises
    ------
    UserError : as ``renewed``, with the page's name; the page stays as it is
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    try:
        fresh = renew_text(text, paper)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    if fresh != text:
        write_atomically(path, fresh)
