"""The papers' tables, cell by cell: the run for each, and the printed number.

``papers/<paper>/tables.yaml`` maps a table's name to

experiment : the file in ``conf/experiment`` that all cells start from
keys : {column: {value: overrides}}; a cell has one value of every column
where : a list of {column: value or values, ..., overrides}: more overrides for the cells that agree
lookup : {file, columns: {column: key}, row: {column: value}}: overrides ``key=value`` from the row of
    ``tables/<file>.csv`` that agrees with the cell (and with ``row``) in all columns that both have
metric, split : which rows of metrics.csv count; split is ``test`` by default; ``weight_*`` means all
    metrics that begin so, averaged
reduction : from rounds to one number: ``last``, ``best``, or ``last10``, the mean of the last ten
scale : factor from our number to the paper's (100: the paper prints per cent)
measure : the dotted name of a function of a run's folder, where no metric is the paper's number; one of
    baselines.reproduce.statistics reads it off the metric's curve, which then is in the figure
curves : the table with the committed curves to measure; the measure is then a function of a curve, and needs
    no run if that table has them
by : the axis of a measured curve, such as ``epoch``; the measure then returns a curve from a run's folder
lower : whether less is better; for a loss it always is
seeds : the paper's number of seeds
seeded : false if the seed decides nothing, so that a single run is enough
y_from : where the figure's vertical axis begins; lower values are cut off
x : the column along the figure's axis; without it, a figure shows rounds
findings : the paper's conclusions, a list of {text, column, better, worse, where}, each with one value or
    several. Of two cells that differ only in ``column``, ``better`` is better than ``worse``; with
    ``or_equal: true``, at least as good. With ``gain: {column, better, worse}``, the compared numbers are
    the gains of that ``better`` over that ``worse``. With ``below`` instead of column, better and worse,
    each cell's number lies below that. With ``within``, ``better`` and ``worse`` differ by less than that.
    ``general: true`` marks a claim about all pairs at once, which gets one test over them;
    ``headline: true`` the claim that the front page shows
title : the paper's name of the table, what its numbers are, and their unit
label : distinguishes its pairs of cells from those of other tables with the same keys
columns : {overrides: heading}: the headings on the paper's page of columns with another setting's numbers
readings : a list of {where, difference}: the number of the page's difference that applies to these cells
beside : {table, heading, where, values}: on the page, these numbers are further columns of another table:
    for its cells that agree with ``where``, one for each of the ``values`` of keys that it lacks
show : ``figure``: the page has this table's figure, and no table of its own
panels : {column: values}: the figure's panels; without it, all of them

``papers/<paper>/tables/<table>.csv`` holds the same key columns with ``paper_mean`` and ``paper_std``, in
the paper's order of rows. A table without such a file has every combination of its keys as cells. The
authors' curves, if any, are in ``<table>_curves.csv``: the keys, ``round``, ``paper_value``.
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
STATISTICS = "baselines.reproduce.statistics."  # measures of a curve


@dataclass(frozen=True)
class Cell:
    """One cell of a paper's table.

    Parameters
    ----------
    keys : {column: value} as printed
    overrides : what ``baselines.run`` takes, without the seed
    paper_mean, paper_std : the printed number; None if there is none, or it is illegible
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
        """The quantity measured in each round, in words."""
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
        """The factor from a number, as the paper scales it, to per cent; None if it is not a share."""
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

    @property
    def has_curves(self) -> bool:
        """Whether runs have a curve that shows the table's number: that of no metric is measured on a model."""
        reads_curve = self.measure is None or self.measure.startswith(STATISTICS) or self.by != "round"
        return self.curves is None and reads_curve

    def paper_curves(self) -> list[dict[str, str]]:
        """Return the authors' curves, point by point; empty if there are none."""
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
            columns = {column: value for column, value in condition.items() if column != "overrides"}
            if agrees(row, columns):
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
    UserError : if the paper does not exist
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


def agrees(keys: Mapping[str, str], condition: Mapping[str, Any]) -> bool:
    """Say whether a cell's keys have the wanted value, or one of the wanted values, in each column."""
    return all(keys[column] in texts(value) for column, value in condition.items())


def texts(value: object) -> list[str]:
    """Return a value of tables.yaml, or each of its values, as a cell's key spells it."""
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _number(text: str | None) -> float | None:
    return float(text) if text else None
