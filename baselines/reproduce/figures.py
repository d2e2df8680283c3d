"""The picture of a table: paper and ours side by side, or curves with their spread."""

import textwrap
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .paper_tables import Cell, PaperTable, agrees
from .results import Ours, Results

# Panels of a figure that is written to a file, and what all of them look like.


mpl.use("Agg")


COLUMNS = 3  # of panels
LABEL = 36  # letters of a line along the vertical axis


def panelled(places: Sequence[int], columns: int = COLUMNS) -> tuple[Figure, list[Axes]]:
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


def finish_panels(axis: Axes, x: str, y: str) -> None:
    """Label the axes; y stands at the first column alone."""
    axis.set_xlabel(x)
    place = axis.get_subplotspec()
    if place is None or place.is_first_col():
        axis.set_ylabel(textwrap.fill(y, LABEL))
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


# The figure of curves: the table's number by round, with its spread over seeds.


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
        finish_panels(axis, _rounds(own.x), table.quantity)
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


# Figures of numbers: a point for each cell, the paper's beside ours.


OURS, PAPER = "tab:blue", "black"
MARKERS = {  # and how they are filled
    "ours": ("o", "full"),
    "ours, one seed": ("o", "none"),
    "ours, not the paper's setting": ("x", "full"),
}


def dots(table: PaperTable, results: Results) -> Figure:
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
    for label, (marker, fill) in MARKERS.items():
        some = [(row, one) for row, one in zip(rows, found, strict=True) if _label(one) == label]
        if some:
            axis.errorbar(
                [one.mean for _, one in some],
                [row + 0.12 for row, _ in some],
                xerr=[one.std or 0.0 for _, one in some],
                fmt=marker,
                color=OURS,
                markersize=5,
                fillstyle=fill,
                label=label,
            )
    axis.set_yticks(rows, [" ".join(cell.keys.values()) for cell in cells], fontsize=7)
    axis.set_ylim(len(cells) - 0.4, -0.6)
    finish_panels(axis, table.subject, "")
    axis.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def _label(found: Ours) -> str:
    """Return how a number of ours is marked."""
    if found.changes:
        return "ours, not the paper's setting"
    return "ours, one seed" if _is_single(found) else "ours"


def _is_single(found: Ours) -> bool:
    """Say whether a number has no spread because it is of one seed."""
    return found.seeded and len(found.by_seed) == 1


def along(table: PaperTable, results: Results) -> Figure:
    """Draw the number over the column that the paper's figure has along its axis."""
    assert table.x is not None
    ticks = list(table.keys[table.x])
    others = [key for key in table.keys if key != table.x]
    panel_key, line_key = (others[0], others[1:]) if len(others) > 1 else (None, others)
    cells = table.cells()
    ran = [cell for cell in cells if tuple(cell.keys.values()) in results]
    panels = list(dict.fromkeys(cell.keys[panel_key] for cell in ran)) if panel_key else [""]
    lines: dict[str, list[Cell]] = {}
    for cell in cells:
        lines.setdefault(" ".join(cell.keys[key] for key in line_key) or "ours", []).append(cell)
    figure, axes = panelled(range(len(panels)))
    for axis, panel in zip(axes, panels, strict=True):
        for number, (label, on_it) in enumerate(lines.items()):
            own = [cell for cell in on_it if not panel_key or cell.keys[panel_key] == panel]
            below = len(lines) - 1 - number  # the wider, so that it is seen where another lies on it
            _line(axis, table, results, own, label, f"C{number}", 1.4 + 0.8 * below)
        axis.set_xticks(range(len(ticks)), ticks)
        axis.set_xlim(-0.25, len(ticks) - 0.75)  # also where one place alone has a number
        axis.set_title(panel, fontsize=9)
        finish_panels(axis, table.x, table.subject)
    beside = any(cell.paper_mean is not None for cell in cells)
    hollow = any(map(_is_single, results.values()))
    told = "; ".join(filter(None, ["squares: paper" * beside, "hollow: one seed" * hollow]))
    axes[0].legend(frameon=False, fontsize=8, title=told or None, title_fontsize=7)
    return figure


def _line(
    axis: Axes,
    table: PaperTable,
    results: Results,
    cells: Sequence[Cell],
    label: str,
    color: str,
    width: float,
) -> None:
    """Draw ours with its spread, hollow where it is of one seed, and the paper's in squares."""
    ticks = list(table.keys[str(table.x)])
    printed, found = {}, {}
    for cell in cells:
        place = ticks.index(cell.keys[str(table.x)])
        if cell.paper_mean is not None:
            printed[place] = cell.paper_mean
        if tuple(cell.keys.values()) in results:
            found[place] = results[tuple(cell.keys.values())]
    if found:
        places = range(len(ticks))
        mean = [
            found[place].mean if place in found else nan for place in places
        ]  # a gap where nothing has run
        std = [found[place].std or 0.0 if place in found else nan for place in places]
        axis.errorbar(
            places, mean, std, marker="o", ms=4, lw=width, elinewidth=1.4, color=color, label=label
        )
        single = {place: one.mean for place, one in found.items() if _is_single(one)}
        axis.plot(list(single), list(single.values()), "o", ms=4, color=color, mfc="white", zorder=3)
    axis.plot(list(printed), list(printed.values()), "s", ms=8, mfc="none", color=color, zorder=4)


def draw_figure(table: PaperTable, results: Results, points: pd.DataFrame, folder: Path) -> Path | None:
    """Draw ``<table>.png``; return its path, or None when there is nothing of ours to draw."""
    if not results:
        return None
    if table.x is not None:
        figure = along(table, results)
    elif not points.empty:
        figure = curves(table, results, points)
    else:
        figure = dots(table, results)
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
        how = "not all" if "" in changes else "none"
        return f"{how} in the paper's setting: see the table"
    return "".join(f"not the paper's setting: {changed}" for changed in changes if changed)
