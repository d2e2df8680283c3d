"""The papers' tables, cell by cell: which run fills which, and what the paper prints there.

``papers/<paper>/tables.yaml`` maps a table's name to

experiment : the file in ``conf/experiment`` that all cells start from
keys : {column: {value: overrides}}; a cell has one value of every column
where : a list of {column: value or values, ..., overrides}: more overrides for the cells that agree
lookup : {file, columns: {column: key}, row: {column: value}}: overrides ``key=value`` from the row of
    ``tables/<file>.csv`` that agrees with the cell (and with ``row``) in all columns that both have
metric, split : which rows of metrics.csv count; split is ``test`` by default, and ``weight_*`` the mean of
    all metrics that begin so
reduction : from rounds to one number: ``last``, ``best``, or ``last10``, the mean of the last ten
scale : what to multiply our number by to compare it with the paper's (100: the paper prints per cent)
measure : the dotted name of a function of a run's folder, where no metric is the paper's number
curves : the table whose committed curves the measure is taken of; it is then a function of a curve, and no run
    is needed where that table has them
by : what a curve of the measure has along its axis, ``epoch``; the measure then returns a curve of a run's folder
lower : whether less is better, as it is of a loss
seeds : how many seeds the paper's numbers are over
seeded : false where the seed decides nothing, so that a single run is enough
y_from : where the figure's vertical axis begins; what lies below is cut off
x : the column that the paper's figure has along its axis; a figure without one shows rounds
findings : what the paper concludes: a list of {text, column, better, worse, where}, a value or several
    each; of two cells that differ in ``column`` alone, ``better`` is better than ``worse``, or with
    ``or_equal: true`` no worse. With ``gain: {column, better, worse}`` not the cells' numbers are compared, but
    how much ``better`` gains over ``worse`` there. With ``below`` in place of the three each cell's number
    lies below that. ``general: true`` marks a claim about all pairs at once, which gets one test over them,
    ``headline: true`` the claim that the front page shows

title : what the paper calls the table, what its numbers are, and their unit
label : what tells its pairs of cells from those of other tables, where their keys do not
columns : {overrides: heading}: what a column of numbers of another setting is called on the paper's page
readings : a list of {where, difference}: the numbered difference of the page that these cells stand on
beside : {table, heading, where, values}: on the page these numbers are further columns of another table:
    of its cells that agree with ``where``, one for each of the ``values`` of keys that it does not have
show : ``figure``: the page has this table's figure, and no table of its own
panels : {column: values}: the panels that the figure has; without it all of them

``papers/<paper>/tables/<table>.csv`` holds the same key columns with ``paper_mean`` and ``paper_std``, in
the paper's order of rows. A table without such a file has every combination of its keys as cells. Where
there are curves of the authors', ``<table>_curves.csv`` has them: the keys, ``round``, ``paper_value``.
"""

import csv
import itertools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from baselines.errors import UserError

PAPERS = Path(__file__).parents[1] / "papers"


@dataclass(frozen=True)
class Cell:
    """One cell of a paper's table.

    Parameters
    ----------
    keys : {column: value} as printed
    overrides : what ``baselines.run`` takes, without the seed
    paper_mean, paper_std : the printed number; None where there is none, or it cannot be read
    """

    keys: Mapping[str, str]
    overrides: tuple[str, ...]
    paper_mean: float | None = None
    paper_std: float | None = None


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table of a paper; see the module's docstring for the fields."""

    paper: str
    name: str
    experiment: str
    metric: str
    reduction: str
    keys: Mapping[str, Mapping[str, str]]
    where: tuple[Mapping[str, Any], ...] = ()
    lookup: Mapping[str, Any] = field(default_factory=dict)
    split: str = "test"
    scale: float = 1.0
    measure: str | None = None
    curves: str | None = None
    by: str = "round"
    lower: bool = False
    seeds: int = 1
    seeded: bool = True
    x: str | None = None
    y_from: float | None = None
    findings: tuple[Mapping[str, Any], ...] = ()
    title: str = ""
    label: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    readings: tuple[Mapping[str, Any], ...] = ()
    beside: Mapping[str, Any] = field(default_factory=dict)
    show: str = "table"
    panels: Mapping[str, Any] = field(default_factory=dict)

    @property
    def quantity(self) -> str:
        """What is counted in each round, in words."""
        split, metric = self.split, self.metric
        return f"mean {split} {metric.removesuffix('_*')}" if metric.endswith("*") else f"{split} {metric}"

    @property
    def subject(self) -> str:
        """What the table's numbers are."""
        if self.measure is not None:
            return self.measure.rpartition(".")[2].replace("_", " ")
        over = {"last": "last round", "best": "best round", "last10": "mean of the last ten rounds"}
        return f"{self.quantity}, {over[self.reduction]}"

    @property
    def points(self) -> float | None:
        """What to multiply a number of ours by for per cent; None where it is no share."""
        if self.scale == 100:
            return 1.0
        return 100.0 if self.metric == "accuracy" and self.measure is None else None

    def cells(self) -> list[Cell]:
        """Return the cells in the paper's order."""
        printed = _rows(self.paper, self.name) or list(self._combinations())
        return [
            Cell(
                keys={column: row[column] for column in self.keys},
                overrides=tuple(self._overrides(row)),
                paper_mean=_number(row.get("paper_mean")),
                paper_std=_number(row.get("paper_std")),
            )
            for row in printed
        ]

    def paper_curves(self) -> list[dict[str, str]]:
        """Return the authors' curves, point by point; empty where there are none."""
        return _rows(self.paper, f"{self.name}_curves")

    def _combinations(self) -> Iterator[dict[str, str]]:
        for values in itertools.product(*self.keys.values()):
            yield dict(zip(self.keys, values, strict=True))

    def _overrides(self, row: Mapping[str, str]) -> list[str]:
        overrides = [f"experiment={self.experiment}"]
        for column, values in self.keys.items():
            if row[column] not in values:
                raise UserError(f"{self.paper} {self.name}: {column}={row[column]} is not in tables.yaml")
            overrides += shlex.split(values[row[column]])
        overrides += self._looked_up(row)
        for condition in self.where:
            wanted = {column: value for column, value in condition.items() if column != "overrides"}
            if agrees(row, wanted):
                overrides += shlex.split(condition["overrides"])
        return overrides

    def _looked_up(self, row: Mapping[str, str]) -> list[str]:
        if not self.lookup:
            return []
        known = {column: row[column] for column in self.keys} | dict(self.lookup.get("row", {}))
        for other in _rows(self.paper, self.lookup["file"]):
            if all(other[column] == value for column, value in known.items() if column in other):
                return [f"{key}={other[column]}" for column, key in self.lookup["columns"].items()]
        return []


def papers() -> list[str]:
    """Return the papers' names."""
    return sorted(file.parent.name for file in PAPERS.glob("*/tables.yaml"))


@cache
def tables(paper: str) -> dict[str, PaperTable]:
    """Return a paper's tables by name.

    Raises
    ------
    UserError : for a paper that is not there
    """
    path = PAPERS / paper / "tables.yaml"
    if not path.exists():
        raise UserError(f"no paper {paper!r}: expected one of {', '.join(papers())}")
    content = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    assert isinstance(content, dict)
    return {str(name): _table(paper, str(name), entry) for name, entry in content.items()}


def _table(paper: str, name: str, entry: dict[str, Any]) -> PaperTable:
    keys = {
        column: {str(value): overrides for value, overrides in values.items()}
        for column, values in entry.pop("keys").items()
    }
    entry |= {key: tuple(entry.get(key, ())) for key in ("where", "findings", "readings")}
    return PaperTable(paper=paper, name=name, keys=keys, **entry)


@cache
def _rows(paper: str, name: str) -> list[dict[str, str]]:
    path = PAPERS / paper / "tables" / f"{name}.csv"
    if not path.exists():
        return []
    with open(path) as file:
        return list(csv.DictReader(file))


def agrees(keys: Mapping[str, str], wanted: Mapping[str, Any]) -> bool:
    """Say whether a cell's keys have the wanted value, or one of the wanted values, in each column."""
    return all(keys[column] in texts(value) for column, value in wanted.items())


def texts(value: object) -> list[str]:
    """Return a value of tables.yaml, or each of its values, as a cell's key spells it."""
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _number(text: str | None) -> float | None:
    return float(text) if text else None
