"""The figure of curves: the table's number by round, with its spread over seeds."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .numbers import Results
from .panels import COLUMNS, finish, panelled
from .paper_tables import PaperTable, agrees


def curves(table: PaperTable, results: Results, points: pd.DataFrame) -> Figure:
    """Draw ours by round, and the authors' where there are: a panel for all columns but the last."""
    chosen = _counting(table, results, points)
    chosen = chosen.assign(x=chosen["round"].astype(int), y=chosen.value.astype(float))
    *outer, line_key = table.keys
    panels = list(chosen.groupby(outer, sort=False)) if outer else [((), chosen)]
    colors = {value: f"C{number}" for number, value in enumerate(table.keys[line_key])}
    last = list(table.keys[outer[-1]]) if outer else []
    figure, axes = panelled(*_grid([tuple(map(str, keys)) for keys, _ in panels], last))
    for axis, (keys, own) in zip(axes, panels, strict=True):
        titles = [f"{key} {value}" for key, value in zip(outer, keys, strict=True)]
        for value, line in own.groupby(line_key, sort=False):
            cell = dict(zip(table.keys, (*map(str, keys), str(value)), strict=True))
            _draw(axis, table, cell, line, colors[str(value)])
        axis.set_title(", ".join(titles), fontsize=9)
        if table.metric == "loss" and (own.y > 0).all():
            axis.set_yscale("log")
        axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
        finish(axis, _rounds(own.x), table.quantity)
    if table.y_from is not None:
        top = max(axis.dataLim.ymax for axis in axes)
        axes[0].set_ylim(table.y_from, top + 0.05 * (top - table.y_from))  # the panels share it
    drawn = {
        label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        [drawn[label] for label in colors if label in drawn],
        [label for label in colors if label in drawn],
        title=f"{line_key}; dotted: the authors" if table.paper_curves() else line_key,
        loc="outside upper right",
        ncols=min(len(drawn), int(figure.get_figwidth() / 1.1)),
        frameon=False,
        fontsize=8,
        title_fontsize=8,
    )
    return figure


def _rounds(drawn: "pd.Series[int]") -> str:
    """Return what stands below the axis of rounds; where some are not drawn, their peaks are not seen."""
    there, all_of_them = drawn.nunique(), int(drawn.max()) + 1
    return "round" if there >= all_of_them - 1 else f"round ({there} of {all_of_them} drawn)"


def _draw(axis: Axes, table: PaperTable, cell: Mapping[str, str], points: pd.DataFrame, color: str) -> None:
    """Draw our curve of a cell with its spread over seeds, and the authors' dotted."""
    stats = points.groupby("x").y.agg(["mean", "std"]).fillna(0.0)
    *_, label = cell.values()
    axis.plot(stats.index, stats["mean"], color=color, label=label, linewidth=1.4)
    low, high = stats["mean"] - stats["std"], stats["mean"] + stats["std"]
    axis.fill_between(stats.index, low, high, color=color, alpha=0.2, linewidth=0)
    authors = [row for row in table.paper_curves() if agrees(row, cell)]
    if authors:
        x, y = zip(*[(int(row["round"]), float(row["paper_value"])) for row in authors], strict=True)
        axis.plot(x, y, color=color, linestyle=":", linewidth=1.4)


def _counting(table: PaperTable, results: Results, points: pd.DataFrame) -> pd.DataFrame:
    """Return the points in the setting of the numbers: those of two settings are never averaged."""
    changes = [
        results[keys].changes if keys in results else None
        for keys in points[list(table.keys)].itertuples(index=False, name=None)
    ]
    return points[points.changes == pd.Series(changes, index=points.index)]


def _grid(panels: list[tuple[str, ...]], last: Sequence[str]) -> tuple[list[int], int]:
    """Return the place of each panel and the number of columns, one for each of the ``last`` key's values.

    Panels of a single key follow each other.
    """
    if len(panels[0]) < 2:
        return list(range(len(panels))), COLUMNS
    rows = list(dict.fromkeys(keys[:-1] for keys in panels))
    columns = [value for value in last if any(keys[-1] == value for keys in panels)]
    return [len(columns) * rows.index(keys[:-1]) + columns.index(keys[-1]) for keys in panels], len(columns)
