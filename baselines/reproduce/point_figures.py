"""Figures of numbers: a point for each cell, the paper's beside ours."""

from math import nan

from matplotlib.figure import Figure

from .numbers import Results
from .panels import finish, panelled, plt
from .paper_tables import PaperTable
from .report import subject

OURS, PAPER = "tab:blue", "black"


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
    finish(axis, subject(table), "")
    axis.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def along(table: PaperTable, results: Results) -> Figure:
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
    figure, axes = panelled(range(len(panels)))
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
        finish(axis, table.x, subject(table))
    beside = any(cell.paper_mean is not None for cell in cells)
    axes[0].legend(frameon=False, fontsize=8, title="squares: paper" if beside else None, title_fontsize=7)
    return figure
