"""Figures of numbers: a point for each cell, the paper's beside ours."""

from collections.abc import Sequence
from math import nan

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .numbers import Ours, Results
from .panels import finish, panelled, plt
from .paper_tables import Cell, PaperTable

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
    finish(axis, table.subject, "")
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
        finish(axis, table.x, table.subject)
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
