"""The picture of a table: paper and ours side by side, or curves with their spread."""

import textwrap
from collections.abc import Sequence
from math import nan
from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from baselines.cells import PaperTable, agrees

from .numbers import Results
from .report import subject

OURS, PAPER = "tab:blue", "black"
COLUMNS = 3  # of panels


def draw(table: PaperTable, results: Results, curves: pd.DataFrame, folder: Path) -> Path | None:
    """Draw ``<table>.png``; return its path, or None when there is nothing of ours to draw."""
    if not results:
        return None
    if table.x is not None:
        figure = _along(table, results)
    elif not curves.empty:
        figure = _curves(table, _counting(table, results, curves))
    else:
        figure = _dots(table, results)
    departure = textwrap.fill(_departure(results), int(14 * figure.get_figwidth()))  # letters to an inch
    figure.supxlabel(departure, fontsize=9, color="tab:red")
    target = folder / f"{table.name}.png"
    figure.savefig(target, dpi=130)
    plt.close(figure)
    return target


def _departure(results: Results) -> str:
    """Return what a reader must be told below the figure."""
    changes = {found.changes for found in results.values()}
    if len(changes) > 1:
        return "not all in the paper's setting: see the table"
    return "".join(f"not the paper's setting: {changed}" for changed in changes if changed)


def _dots(table: PaperTable, results: Results) -> Figure:
    """Draw a row for each cell that was run: the paper's number and ours."""
    cells = [cell for cell in table.cells() if tuple(cell.keys.values()) in results]
    figure, axis = plt.subplots(figsize=(7.5, 1.2 + 0.22 * len(cells)), layout="constrained")
    rows = range(len(cells))
    printed = [(row, cell) for row, cell in zip(rows, cells, strict=True) if cell.paper_mean is not None]
    axis.errorbar(
        [cell.paper_mean or 0.0 for _, cell in printed],
        [row - 0.12 for row, _ in printed],
        xerr=[cell.paper_std or 0.0 for _, cell in printed],
        fmt="o",
        color=PAPER,
        fillstyle="none",
        markersize=5,
        label="paper",
    )
    found = [results[tuple(cell.keys.values())] for cell in cells]
    for changed, marker, label in ((False, "o", "ours"), (True, "x", "ours, not the paper's setting")):
        some = [(row, one) for row, one in zip(rows, found, strict=True) if bool(one.changes) == changed]
        if some:
            axis.errorbar(
                [one.mean for _, one in some],
                [row + 0.12 for row, _ in some],
                xerr=[one.std or 0.0 for _, one in some],
                fmt=marker,
                color=OURS,
                markersize=5,
                label=label,
            )
    axis.set_yticks(rows, [" ".join(cell.keys.values()) for cell in cells], fontsize=7)
    axis.set_ylim(len(cells) - 0.4, -0.6)
    _finish(axis, subject(table), "")
    axis.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def _along(table: PaperTable, results: Results) -> Figure:
    """Draw the number over the column that the paper's figure has along its axis."""
    assert table.x is not None
    ticks = list(table.keys[table.x])
    others = [key for key in table.keys if key != table.x]
    panel_key, line_key = (others[0], others[1:]) if len(others) > 1 else (None, others)
    cells = table.cells()
    ran = [cell for cell in cells if tuple(cell.keys.values()) in results]
    panels = list(dict.fromkeys(cell.keys[panel_key] for cell in ran)) if panel_key else [""]
    names = [" ".join(cell.keys[key] for key in line_key) or "ours" for cell in cells]
    colors = {name: f"C{number}" for number, name in enumerate(dict.fromkeys(names))}
    figure, axes = _panels(range(len(panels)))
    for axis, panel in zip(axes, panels, strict=True):
        lines: dict[str, list[tuple[float, float]]] = {}  # a gap where nothing has run
        printed: dict[str, list[tuple[int, float]]] = {}
        for cell, label in zip(cells, names, strict=True):
            if panel_key and cell.keys[panel_key] != panel:
                continue
            place = ticks.index(cell.keys[table.x])
            if found := results.get(tuple(cell.keys.values())):
                line = lines.setdefault(label, [(nan, nan)] * len(ticks))
                line[place] = found.mean, found.std or 0.0
            if cell.paper_mean is not None:
                printed.setdefault(label, []).append((place, cell.paper_mean))
        for label, color in colors.items():
            if label in lines:
                mean, std = zip(*lines[label], strict=True)
                axis.errorbar(
                    range(len(ticks)), mean, yerr=std, marker="o", markersize=4, color=color, label=label
                )
            if label in printed:
                x, mean = zip(*printed[label], strict=True)
                axis.plot(x, mean, linestyle="none", marker="s", fillstyle="none", color=color)
        axis.set_xticks(range(len(ticks)), ticks)
        axis.set_xlim(-0.25, len(ticks) - 0.75)  # also where one place alone has a number
        axis.set_title(panel, fontsize=9)
        _finish(axis, table.x, subject(table))
    beside = any(cell.paper_mean is not None for cell in cells)
    axes[0].legend(frameon=False, fontsize=8, title="squares: paper" if beside else None, title_fontsize=7)
    return figure


def _counting(table: PaperTable, results: Results, curves: pd.DataFrame) -> pd.DataFrame:
    """Return the curves in the setting of the numbers: those of two settings are never averaged."""
    changes = [
        results[keys].changes if keys in results else None
        for keys in curves[list(table.keys)].itertuples(index=False, name=None)
    ]
    return curves[curves.changes == pd.Series(changes, index=curves.index)]


def _curves(table: PaperTable, curves: pd.DataFrame) -> Figure:
    """Draw ours by round, and the authors' where there are: a panel for all columns but the last."""
    chosen = curves.assign(x=curves["round"].astype(int), y=curves.value.astype(float))
    *outer, line_key = table.keys
    panels = list(chosen.groupby(outer, sort=False)) if outer else [((), chosen)]
    colors = {value: f"C{number}" for number, value in enumerate(table.keys[line_key])}
    last = list(table.keys[outer[-1]]) if outer else []
    figure, axes = _panels(*_grid([tuple(map(str, keys)) for keys, _ in panels], last))
    for axis, (keys, own) in zip(axes, panels, strict=True):
        titles = [f"{key} {value}" for key, value in zip(outer, keys, strict=True)]
        for value, line in own.groupby(line_key, sort=False):
            stats = line.groupby("x").y.agg(["mean", "std"]).fillna(0.0)
            color = colors[str(value)]
            axis.plot(stats.index, stats["mean"], color=color, label=str(value), linewidth=1.4)
            low, high = stats["mean"] - stats["std"], stats["mean"] + stats["std"]
            axis.fill_between(stats.index, low, high, color=color, alpha=0.2, linewidth=0)
            cell = dict(zip(table.keys, (*map(str, keys), str(value)), strict=True))
            points = [row for row in table.paper_curves() if agrees(row, cell)]
            if points:
                x, y = zip(*[(int(row["round"]), float(row["paper_value"])) for row in points], strict=True)
                axis.plot(x, y, color=color, linestyle=":", linewidth=1.4)
        axis.set_title(", ".join(titles), fontsize=9)
        if table.metric == "loss" and (own.y > 0).all():
            axis.set_yscale("log")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        _finish(axis, "round", table.quantity)
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


def _grid(panels: list[tuple[str, ...]], last: Sequence[str]) -> tuple[list[int], int]:
    """Return the place of each panel and the number of columns, one for each of the ``last`` key's values.

    Panels of a single key follow each other.
    """
    if len(panels[0]) < 2:
        return list(range(len(panels))), COLUMNS
    rows = list(dict.fromkeys(keys[:-1] for keys in panels))
    columns = [value for value in last if any(keys[-1] == value for keys in panels)]
    return [len(columns) * rows.index(keys[:-1]) + columns.index(keys[-1]) for keys in panels], len(columns)


def _panels(places: Sequence[int], columns: int = COLUMNS) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels in these places, counted row by row, and nothing in the others."""
    columns = min(max(places) + 1, columns)
    rows = max(places) // columns + 1
    size = (4.4 * columns, 3.6 * rows)
    figure, axes = plt.subplots(
        rows, columns, figsize=size, squeeze=False, sharey=True, layout="constrained"
    )
    for place in set(range(axes.size)).difference(places):
        axes.flat[place].remove()
    return figure, [axes.flat[place] for place in places]


def _finish(axis: Axes, x: str, y: str) -> None:
    """Label the axes; y stands at the first column alone."""
    axis.set_xlabel(x)
    place = axis.get_subplotspec()
    if place is None or place.is_first_col():
        axis.set_ylabel(y)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
