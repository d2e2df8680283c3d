"""Which numbers an expression on a page names (``page_numbers.py``).

    table4_4 fmnist dominant_labels method=fedadam,fedyogi gma - average

``[COLUMN=]VALUE[,VALUE]`` : values of a column of the table, which is named where several have such values
``round=N`` : that round of the curve, in place of the table's number; only some rounds are kept
``seed=N`` : that seed alone
any other ``KEY=VALUE`` : an override in which a number departs from the paper's setting. Of a cell's
    numbers that have all of these the one with the fewest changes counts; without any, the table's own

Behind ``-`` or ``/`` stand the values in which the second cell differs; all else is as in the first.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import sub, truediv

from baselines.errors import UserError

from . import collect, numbers, paper_tables
from .numbers import Keys, Ours
from .paper_tables import Cell, PaperTable
from .plan import table_of

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
    rows = collect.read(folder / f"{name}{'_curves' * ('round' in dict(only))}.csv")
    for column, value in only:
        rows = rows if rows.empty else rows[rows[column] == value]
    if "round" in rows:
        rows = rows.rename(columns={"round": "rounds"}).assign(config="")
    table = table_of(paper, name)
    found = numbers.settings(table, rows, {})
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
