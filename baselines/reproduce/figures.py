"""The figure of a table: paper and ours side by side, or curves with their spread."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import nan
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from baselines.reports.curves import is_logarithmic, scale_y
from baselines.reports.names import (
    COLOURS,
    cell_name,
    column_name,
    is_number,
    line_styles,
    names_of,
    value_name,
)

from .paper_tables import Cell, PaperTable, agrees
from .results import Ours, Results

# Panels of a figure that is written to a file, and their common look.


mpl.use("Agg")


COLUMNS = 3  # of panels
LABEL = 36  # characters of a line along the vertical axis


def arrange_panels(places: Sequence[int], columns: int = COLUMNS) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels only in these places, counted row by row."""
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
    """Label the axes; y only in the first column."""
    axis.set_xlabel(x)
    place = axis.get_subplotspec()
    if place is None or place.is_first_col():
        axis.set_ylabel(textwrap.fill(y, LABEL))
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


# The figure of curves: the table's number by round, with its spread over seeds.


def curves(table: PaperTable, results: Results, points: pd.DataFrame) -> Figure:
    """Draw our curves, and the authors' if any: a panel per value of all key columns but the last."""
    chosen = _counting(table, results, points)
    chosen = chosen[[agrees(dict(keys), table.panels) for _, keys in chosen[list(table.keys)].iterrows()]]
    factor = table.points or 1.0
    chosen = chosen.assign(x=chosen["round"].astype(int), y=factor * chosen.value.astype(float))
    *outer, line_key = table.keys
    panels = list(chosen.groupby(outer, sort=False)) if outer else [((), chosen)]
    looks = _looks(table, line_key)
    last = list(table.keys[outer[-1]]) if outer else []
    figure, axes = arrange_panels(*_grid([tuple(map(str, keys)) for keys, _ in panels], last))
    for axis, (keys, own) in zip(axes, panels, strict=True):
        fixed = dict(zip(outer, map(str, keys), strict=True))
        for value, line in own.groupby(line_key, sort=False):
            _draw(axis, table, {**fixed, line_key: str(value)}, line, looks[str(value)])
        axis.set_title(cell_name(fixed), fontsize=9)
        if table.metric == "loss" and (own.y > 0).all():
            axis.set_yscale("log")
        axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
        finish_panels(axis, _rounds(own.x, table.by), with_unit(table, table.quantity))
    if table.y_from is not None:
        low, top = factor * table.y_from, max(axis.dataLim.ymax for axis in axes)
        axes[0].set_ylim(low, top + 0.05 * (top - low))  # shared by the panels
    _legend(figure, axes, table, line_key)
    _note(figure, results, "bands" if len(set(chosen.seed)) > 1 else "")
    return figure


def _legend(figure: Figure, axes: Sequence[Axes], table: PaperTable, line_key: str) -> None:
    """Name the lines above the panels, in the table's order."""
    drawn = {
        label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    names = [name for value in table.keys[line_key] if (name := value_name(value, line_key)) in drawn]
    figure.legend(
        [drawn[name] for name in names],
        names,
        title=column_name(line_key) + "; circles: the authors" * bool(table.paper_curves()),
        loc="outside upper right",
        ncols=min(len(names), int(figure.get_figwidth() / 1.4)),
        frameon=False,
        fontsize=8,
        title_fontsize=8,
        handlelength=3.2,
    )


def _looks(table: PaperTable, column: str) -> dict[str, dict[str, Any]]:
    """Return the line style of each value: a method's own; for numbers, shades by size."""
    values = list(table.keys[column])
    looks = line_styles([value_name(value, column) for value in values])
    if all(map(is_number, values)):
        shades = mpl.colormaps["viridis"]
        for place, look in enumerate(looks):
            look["color"] = shades(0.9 * place / max(1, len(values) - 1))
    for look in looks:
        del look["marker"]
    return dict(zip(values, looks, strict=True))


def with_unit(table: PaperTable, text: str) -> str:
    """Return an axis label with the unit of a table's numbers."""
    text = text.replace("_", " ")
    if table.points is None or (table.measure is not None and table.metric != "accuracy"):
        return text
    return f"{text} (points)" if text.endswith("gap") else f"{text} (%)"


def _rounds(drawn: "pd.Series[int]", unit: str) -> str:
    """Return the label of the rounds' axis; say so if not all are drawn, as peaks may be missing."""
    num_drawn, all_of_them = drawn.nunique(), int(drawn.max()) + 1
    return unit if num_drawn >= all_of_them - 1 else f"{unit} ({num_drawn} of {all_of_them} drawn)"


def _draw(
    axis: Axes, table: PaperTable, cell: Mapping[str, str], points: pd.DataFrame, look: dict[str, Any]
) -> None:
    """Draw our curve of a cell with its spread over seeds, and the authors' as circles."""
    stats = points.groupby("x").y.agg(["mean", "std"]).fillna(0.0)
    column, value = list(cell.items())[-1]
    axis.plot(stats.index, stats["mean"], label=value_name(value, column), linewidth=1.4, **look)
    low, high = stats["mean"] - stats["std"], stats["mean"] + stats["std"]
    axis.fill_between(stats.index, low, high, color=look["color"], alpha=0.2, linewidth=0)
    authors = [row for row in table.paper_curves() if agrees(row, cell)]
    if authors:
        factor = table.points or 1.0
        x, y = zip(
            *[(int(row["round"]), factor * float(row["paper_value"])) for row in authors], strict=True
        )
        axis.plot(x, y, "o", color=look["color"], mfc="none", markersize=3.2, markeredgewidth=0.8)


def _counting(table: PaperTable, results: Results, points: pd.DataFrame) -> pd.DataFrame:
    """Return the points in the same setting as the numbers: settings are never averaged."""
    changes = [
        results[keys].changes if keys in results else None
        for keys in points[list(table.keys)].itertuples(index=False, name=None)
    ]
    return points[points.changes == pd.Series(changes, index=points.index)]


def _grid(panels: list[tuple[str, ...]], last: Sequence[str]) -> tuple[list[int], int]:
    """Return each panel's place and the number of columns, one per value of the ``last`` key.

    Panels of a single key follow each other.
    """
    if len(panels[0]) < 2:
        return list(range(len(panels))), COLUMNS
    rows = list(dict.fromkeys(keys[:-1] for keys in panels))
    columns = [value for value in last if any(keys[-1] == value for keys in panels)]
    return [len(columns) * rows.index(keys[:-1]) + columns.index(keys[-1]) for keys in panels], len(columns)


# Figures of numbers: a point for each cell, the paper's beside ours.


OURS, PAPER = COLOURS["blue"], "black"
MARKERS = {  # marker and fill
    "ours": ("o", "full"),
    "ours, one seed": ("o", "none"),
    "ours, not the paper's setting": ("x", "full"),
}


def draw_dots(table: PaperTable, results: Results) -> Figure:
    """Draw a row for each cell that was run: the paper's number and ours."""
    cells = [cell for cell in table.cells() if tuple(cell.keys.values()) in results]
    factor = table.points or 1.0
    figure, axis = plt.subplots(figsize=(7.5, 1.2 + 0.22 * len(cells)), layout="constrained")
    rows = range(len(cells))
    printed = [(row, cell) for row, cell in zip(rows, cells, strict=True) if cell.paper_mean is not None]
    axis.errorbar(
        [factor * (cell.paper_mean or 0.0) for _, cell in printed],
        [row - 0.12 for row, _ in printed],
        xerr=[factor * (cell.paper_std or 0.0) for _, cell in printed],
        fmt="o",
        color=PAPER,
        fillstyle="none",
        markersize=5,
        label="paper" if printed else None,
    )
    ours = [results[tuple(cell.keys.values())] for cell in cells]
    for label, (marker, fill) in MARKERS.items():
        some = [(row, one) for row, one in zip(rows, ours, strict=True) if _label(one) == label]
        if some:
            axis.errorbar(
                [factor * one.mean for _, one in some],
                [row + 0.12 for row, _ in some],
                xerr=[factor * (one.std or 0.0) for _, one in some],
                fmt=marker,
                color=OURS,
                markersize=5,
                fillstyle=fill,
                label=label,
            )
    axis.set_yticks(rows, [cell_name(cell.keys) for cell in cells], fontsize=7)
    axis.set_ylim(len(cells) - 0.4, -0.6)
    finish_panels(axis, with_unit(table, table.subject), "")
    axis.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    spread = any(one.std for one in ours) or any(cell.paper_std for cell in cells)
    _note(figure, results, "whiskers" if spread else "")
    return figure


def _label(ours: Ours) -> str:
    """Return the key of ``MARKERS`` for one of our numbers."""
    if ours.changes:
        return "ours, not the paper's setting"
    return "ours, one seed" if _is_single(ours) else "ours"


def _is_single(ours: Ours) -> bool:
    """Say whether a number lacks a spread because it has one seed."""
    return ours.seeded and len(ours.by_seed) == 1


def draw_lines(table: PaperTable, results: Results) -> Figure:
    """Draw the number over the key column that is the paper's horizontal axis."""
    assert table.x is not None
    ticks = list(table.keys[table.x])
    others = [key for key in table.keys if key != table.x]
    panel_key, line_key = (others[0], others[1:]) if len(others) > 1 else (None, others)
    cells = table.cells()
    ran = [cell for cell in cells if tuple(cell.keys.values()) in results]
    panels = list(dict.fromkeys(cell.keys[panel_key] for cell in ran)) if panel_key else [""]
    lines: dict[str, list[Cell]] = {}
    for cell in cells:
        named = {key: cell.keys[key] for key in line_key}
        lines.setdefault(cell_name(named) or "ours", []).append(cell)
    looks = line_styles(list(lines))
    if list(lines) == ["ours"]:
        looks[0]["linestyle"] = "-"
    figure, axes = arrange_panels(range(len(panels)))
    for axis, panel in zip(axes, panels, strict=True):
        for number, (label, on_it) in enumerate(lines.items()):
            own = [cell for cell in on_it if not panel_key or cell.keys[panel_key] == panel]
            below = len(lines) - 1 - number  # wider below, so that it shows under another line
            look = looks[number] | {"linewidth": 1.4 + 0.8 * below}
            del look["marker"]
            _line(axis, table, results, own, label, look)
        axis.set_xticks(range(len(ticks)), [value_name(tick, table.x) for tick in ticks])
        axis.set_xlim(-0.25, len(ticks) - 0.75)  # even if only one place has a number
        axis.set_title(cell_name({panel_key: panel}) if panel_key else "", fontsize=9)
        finish_panels(axis, column_name(table.x), with_unit(table, table.subject))
    values = [ours.mean for ours in results.values()]
    if table.points is None and is_logarithmic(min(values), max(values)) and max(values) > 10 * min(values):
        scale_y(axes[0], min(values), max(values))
    has_paper = any(cell.paper_mean is not None for cell in cells)
    hollow = any(map(_is_single, results.values()))
    legend_title = "; ".join(filter(None, ["squares: paper" * has_paper, "hollow: one seed" * hollow]))
    axes[0].legend(
        frameon=False, fontsize=8, title=legend_title or None, title_fontsize=7, handlelength=3.2
    ).set_visible(len(lines) > 1 or bool(legend_title))
    spread = any(ours.std for ours in results.values())
    _note(figure, results, "whiskers" if spread else "")
    return figure


def _line(
    axis: Axes,
    table: PaperTable,
    results: Results,
    cells: Sequence[Cell],
    label: str,
    look: dict[str, Any],
) -> None:
    """Draw ours with its spread, hollow for one seed, and the paper's as squares."""
    ticks, factor = list(table.keys[str(table.x)]), table.points or 1.0
    printed, measured = {}, {}
    for cell in cells:
        place = ticks.index(cell.keys[str(table.x)])
        if cell.paper_mean is not None:
            printed[place] = factor * cell.paper_mean
        if tuple(cell.keys.values()) in results:
            measured[place] = results[tuple(cell.keys.values())]
    colour = look["color"]
    if measured:
        places = range(len(ticks))
        mean = [
            factor * measured[place].mean if place in measured else nan for place in places
        ]  # a gap where nothing was run
        std = [factor * (measured[place].std or 0.0) if place in measured else nan for place in places]
        axis.errorbar(places, mean, std, marker="o", ms=4, elinewidth=1.4, label=label, **look)
        single = {place: factor * one.mean for place, one in measured.items() if _is_single(one)}
        axis.plot(list(single), list(single.values()), "o", ms=4, color=colour, mfc="white", zorder=3)
    axis.plot(list(printed), list(printed.values()), "s", ms=8, mfc="none", color=colour, zorder=4)


def _note(figure: Figure, results: Results, spread: str) -> None:
    """Explain below the figure the bands or whiskers, and the setting in which ours was run."""
    departure = textwrap.fill(_departure(results), int(14 * figure.get_figwidth()))  # characters per inch
    spread = f"{spread}: one standard deviation over seeds to each side" if spread else ""
    text = "\n".join(filter(None, [spread, departure]))
    figure.supxlabel(text, fontsize=8.5, color=COLOURS["vermillion"] if departure else "0.35")


KEY = "Description"  # key of the PNG's text that identifies the drawn numbers
UNDRAWN_FIELDS = (
    "columns",
    "experiment",
    "findings",
    "keys",
    "lookup",
    "readings",
    "seeds",
    "show",
    "where",
)


def figure_key(table: PaperTable, results: Results, points: pd.DataFrame) -> str:
    """Return a hash of everything a figure shows: numbers, curves, printed numbers, names and colours."""
    settings = {
        name: value for name, value in vars(table).items() if name not in (*UNDRAWN_FIELDS, "beside")
    }
    cells = [[*cell.keys.items(), cell.paper_mean, cell.paper_std] for cell in table.cells()]
    ours = [[keys, sorted(one.by_seed.items()), one.changes] for keys, one in sorted(results.items())]
    parts = [
        settings,
        cells,
        ours,
        points.to_csv(),
        table.paper_curves(),
        names_of(cell.keys for cell in table.cells()),
    ]
    return sha256(json.dumps(parts, default=str).encode()).hexdigest()


def read_key(path: Path) -> str:
    """Return the hash in a figure's file; empty if there is none."""
    if not path.exists():
        return ""
    with Image.open(path) as image:
        return str(image.info.get(KEY, ""))


def draw_figure(table: PaperTable, results: Results, points: pd.DataFrame, folder: Path) -> Path | None:
    """Draw ``<table>.png``, unless it already shows the same.

    Return its path, or None if there are no results to draw.
    """
    if not results:
        return None
    target, key = folder / f"{table.name}.png", figure_key(table, results, points)
    if read_key(target) == key:
        return target
    if table.x is not None:
        figure = draw_lines(table, results)
    elif not points.empty:
        figure = curves(table, results, points)
    else:
        figure = draw_dots(table, results)
    figure.savefig(target, dpi=130, metadata={KEY: key})
    plt.close(figure)
    return target


def _departure(results: Results) -> str:
    """Return the note below the figure on departures from the paper's setting."""
    changes = {ours.changes for ours in results.values()}
    if len(changes) > 1:
        how = "not all" if "" in changes else "none"
        return f"{how} in the paper's setting: see the table"
    return "".join(f"not the paper's setting: {changed}" for changed in changes if changed)
