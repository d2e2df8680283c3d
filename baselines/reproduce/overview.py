"""Draw the front page's figure from the committed tables, for a wide screen and for a phone.

Left: the gain of each paper's method over its baseline, printed and ours, in each pair of the main claim.
Right: each cell whose accuracy is printed; below, the verdicts on the pairs of all claims of a paper. Each
paper has one colour. The file also holds the numbers (``read_data``), so a test can compare them.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image

from baselines.reports.names import COLOURS, cell_name, method_style, value_name

from . import paper_tables, results
from .claims import SMALLER_SETTING, Claim, find_claims, paper_title
from .findings import CONFIRMED, CONTRADICTED, NOT_RUN, UNDECIDED, Comparison

mpl.use("Agg")

KEY = "Description"  # of the PNG's text with the numbers
LEFT, RIGHT = -8.0, 13.0  # percentage points, at which intervals are cut
LEAST = 85.0  # per cent: cells below are drawn at the edge
NEAR = 1.0  # percentage point
LOOK: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.constrained_layout.h_pad": 0.12,
}
FEW = 4  # pairs: a bar of so few is too short for its number
BARS = {  # face, pattern and letters; no colours, which stand for papers
    CONFIRMED: ("#333333", "", "white"),
    UNDECIDED: ("#D0D0D0", "", "black"),
    CONTRADICTED: ("white", "////", "black"),
}


def overview_data(papers: Sequence[str]) -> dict[str, Any]:
    """Return all numbers of the figure: ``gains``, ``cells`` and ``verdicts`` by paper."""
    return {
        "gains": {paper: gains for paper in papers if (gains := _gains(paper))},
        "cells": {paper: cells for paper in papers if (cells := _cells(paper))},
        "verdicts": {paper: _verdicts(paper) for paper in papers},
    }


def _contrast(paper: str, of_losses: bool) -> str:
    """Return what the headline claim compares: "FedER − FedAvg"; losses, with the best of the others."""
    findings = (finding for table in paper_tables.tables(paper).values() for finding in table.findings)
    finding = next(finding for finding in findings if finding.get("headline"))
    better, worse = (value_name(paper_tables.texts(finding[side])[0]) for side in ("better", "worse"))
    return f"{better} against the best other" if of_losses else f"{better} \N{MINUS SIGN} {worse}"


def _gains(paper: str) -> list[dict[str, Any]]:
    """Return a row for each pair of the headline claim, against its first baseline only.

    A loss is compared with the best of the others: the row has the smallest ratio.
    """
    claims = [claim for claim in find_claims(paper) if claim.headline and claim.run]
    if not claims:
        return []
    claim = claims[0]
    pairs = [pair for pair in claim.run if pair.points or pair.ratio]
    pairs = [pair for pair in pairs if pair.ratio or _is_first(claim, pair)]
    is_printed = any(pair.paper is not None for pair in pairs)
    printed = [pair for pair in pairs if pair.paper is not None or not is_printed]
    rows: dict[str, dict[str, Any]] = {}
    for row in (_gain(pair, claim.text.endswith(SMALLER_SETTING)) for pair in printed):
        known = rows.setdefault(row["name"], row)  # the first of several settings
        if row["ratio"] is not None:
            known["ratio"] = min(known["ratio"], row["ratio"])
    return list(rows.values())


def _is_first(claim: Claim, pair: Comparison) -> bool:
    against = [one.keys["against"] for one in claim.run if "against" in one.keys]
    return not against or pair.keys.get("against") == against[0]


def _gain(pair: Comparison, is_smaller: bool) -> dict[str, Any]:
    low, high = pair.interval if pair.points and pair.interval else (None, None)
    numbers = {"paper": pair.paper, "ours": pair.ours, "low": low, "high": high}
    scaled = {
        key: None if value is None or not pair.points else round(value * pair.points, 4)
        for key, value in numbers.items()
    }
    ratio = None if pair.points or pair.ratio is None else float(f"{pair.ratio:.2g}")
    keys = {column: value for column, value in pair.keys.items() if column != "against"}
    name = ", ".join(filter(None, [pair.label, cell_name(keys)]))
    return {"name": name, "seeds": pair.seeds, "smaller": is_smaller, "ratio": ratio, **scaled}


def _cells(paper: str) -> list[list[float]]:
    """Return (paper, ours) in per cent for every cell that was run in the paper's setting."""
    pairs = []
    for name, table in paper_tables.tables(paper).items():
        factor = table.points
        if factor is None or table.measure is not None or table.beside or table.split == "train":
            continue  # not a test accuracy, or another reading of cells that are included
        rows = results.read(paper_tables.PAPERS / paper / "ours" / f"{name}.csv")
        ours = results.ours(results.settings(table, rows, {}))
        for cell in table.cells():
            one = ours.get(tuple(cell.keys.values()))
            if one is not None and not one.changes and cell.paper_mean is not None:
                pairs.append([round(cell.paper_mean * factor, 4), round(one.mean * factor, 4)])
    return pairs


def _verdicts(paper: str) -> dict[str, int]:
    claims = find_claims(paper)
    return {
        verdict: sum(claim.counts[verdict] for claim in claims)
        for verdict in (CONFIRMED, UNDECIDED, CONTRADICTED, NOT_RUN)
    }


def read_data(path: Path) -> dict[str, Any]:
    """Return the numbers that a figure was drawn from."""
    with Image.open(path) as image:
        data = json.loads(image.text[KEY])  # type: ignore[attr-defined]
    assert isinstance(data, dict)
    return data


def draw_overviews(papers: Sequence[str], folder: Path) -> list[Path]:
    """Draw the figure twice, for a wide screen and for a phone, unless a file has the same numbers already.

    Returns
    -------
    list of Path
        The two files.
    """
    data = overview_data(papers)
    targets = {folder / name: draw for name, draw in DRAWINGS.items()}
    for target, draw in targets.items():
        if not target.exists() or read_data(target) != data:
            with mpl.rc_context(LOOK):
                figure = draw(data)
                figure.savefig(target, metadata={KEY: json.dumps(data)})
            plt.close(figure)
    return list(targets)


def draw_wide(data: dict[str, Any]) -> Figure:
    """Draw the panels beside each other."""
    rows = sum(len(gains) + 2 for gains in data["gains"].values())
    figure = plt.figure(figsize=(14, 2.2 + 0.21 * rows), dpi=110, layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1.5, 1), height_ratios=(1.1, 1))
    gains, cells = figure.add_subplot(grid[:, 0]), figure.add_subplot(grid[0, 1])
    _draw_named_gains(gains, data["gains"])
    _draw_cells(cells, data["cells"])
    cells.set_xlabel(f"{_cells_label('; ')}\n{_absent(data)}")
    _cells_legend(
        cells,
        f"within {NEAR:.0f} point\nof the paper\n(grey band)",
        data["cells"],
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
    )
    _draw_verdicts(figure.add_subplot(grid[1, 1]), data["verdicts"])
    return figure


def draw_narrow(data: dict[str, Any]) -> Figure:
    """Draw the panels below each other, with text that a phone shows as large as a page's own."""
    rows = sum(len(gains) for gains in data["gains"].values())
    heights = (2.0 + 0.11 * rows + 0.36 * len(data["gains"]), 4.4, 4.6)
    figure = plt.figure(figsize=(4.2, sum(heights)), dpi=200, layout="constrained")
    panels: Any = figure.subfigures(3, 1, height_ratios=heights)  # each has the figure's width
    gains, cells, verdicts = (panel.add_subplot() for panel in panels)
    _draw_short_gains(gains, data["gains"])
    _draw_cells(cells, data["cells"])
    cells.set_xlabel(_cells_label(";\n"))
    title = f"within {NEAR:.0f} point of the paper (grey band)"
    _cells_legend(cells, title, data["cells"], loc="upper left", bbox_to_anchor=(-0.1, -0.2))
    _draw_verdicts(verdicts, data["verdicts"])
    return figure


def _colour(paper: str) -> str:
    """Return a paper's colour, that of its method."""
    style = method_style(paper)  # a paper has its method's name
    return COLOURS[style[0] if style else "black"]


def _draw_named_gains(axis: Axes, gains: dict[str, list[dict[str, Any]]]) -> None:
    """Draw a row for each pair, with its name and number of seeds."""
    place, names = 0.0, []
    for paper, rows in gains.items():
        heading: dict[str, Any] = {"weight": "bold", "color": _colour(paper), "fontsize": 10.5}
        axis.text(-0.012, place, _heading(paper, rows), **_get_label_style(axis), **heading)
        for row in rows:
            place += 1
            names.append((place, row["name"]))
            _draw_gain(axis, row, place, _colour(paper))
            seeds = "any" if row["ratio"] is not None else str(row["seeds"])
            axis.text(RIGHT + 1.9, place, seeds, fontsize=9, ha="right", va="center")
        place += 2
    axis.set_yticks(*zip(*names, strict=True), fontsize=8.5)
    axis.set_ylim(place - 0.8, -0.8)
    axis.text(RIGHT + 1.9, -0.9, "seeds", fontsize=9, ha="right", va="bottom")
    _finish_gains(axis, "; ")
    place_of_legend: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.3, -0.05), "ncols": 2}
    axis.legend(handles=_gain_marks(), fontsize=9, frameon=False, **place_of_legend)


def _draw_short_gains(axis: Axes, gains: dict[str, list[dict[str, Any]]]) -> None:
    """Draw a row for each pair, under its paper's comparison; only the wide figure names the pairs."""
    place = 0.0
    for paper, rows in gains.items():
        pairs = f"{len(rows)} pairs"
        heading = axis.text(LEFT, place, _heading(paper, rows), color=_colour(paper), **HEADING)
        style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}
        axis.annotate(pairs, (1, 0.5), (6, 0), xycoords=heading, **style)
        place += 1.6
        for row in rows:
            _draw_gain(axis, row, place, _colour(paper))
            place += 1 if row["ratio"] is None else 1.4  # a line of text
        place += 1
    axis.set_yticks([])
    axis.set_ylim(place - 1, -1.5)
    _finish_gains(axis, ";\n")
    place_of_legend: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (-0.05, -0.09)}
    axis.legend(handles=_gain_marks(), fontsize=8.5, frameon=False, **place_of_legend)


HEADING: dict[str, Any] = {
    "weight": "bold",
    "fontsize": 9.5,
    "va": "center",
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5},
}


def _heading(paper: str, rows: Sequence[dict[str, Any]]) -> str:
    return _contrast(paper, rows[0]["ratio"] is not None) + " †" * rows[0]["smaller"]


def _finish_gains(axis: Axes, stop: str) -> None:
    axis.axvline(0, color="black", linewidth=0.8, zorder=1)
    axis.set_xlim(LEFT - 0.5, RIGHT + 2)
    axis.grid(axis="x", alpha=0.25)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel(
        f"gain in test accuracy (percentage points){stop}right of 0 the paper's method is ahead"
    )
    axis.set_title("Does the method gain over its baseline?", loc="left", weight="bold", fontsize=12)


def _get_label_style(axis: Axes) -> dict[str, Any]:
    return {"transform": axis.get_yaxis_transform(), "ha": "right", "va": "center"}


def _gain_marks() -> list[Line2D]:
    """Return the legend of the marks, which are drawn in the papers' colours."""
    dark: dict[str, Any] = {"color": "0.25", "markersize": 6}
    hollow = dark | {"linestyle": "", "mfc": "white"}
    return [
        Line2D([], [], marker="D", color="black", mfc="white", linestyle="", label=NO_NUMBER),
        Line2D([], [], marker="o", **dark, label="ours, with its 95 % interval over seeds"),
        Line2D([], [], marker="o", **hollow, label="ours, one seed: no interval"),
        Line2D([], [], marker="s", **dark, label="† ours in a smaller setting, hollow on one seed"),
        Line2D([], [], marker=">", **dark, label="the interval goes on beyond the axis"),
    ]


NO_NUMBER = "printed in the paper (without it: curves only)"


def _draw_gain(axis: Axes, row: dict[str, Any], place: float, colour: str) -> None:
    if row["ratio"] is not None:
        text = f"no accuracy; loss {row['ratio']:,.0f} times lower"
        axis.text(0.3, place, text, fontsize=8.5, va="center", color=colour)
        return
    if row["low"] is not None:
        low, high = max(row["low"], LEFT), min(row["high"], RIGHT)
        axis.plot([low, high], [place, place], color=colour, linewidth=1.6, solid_capstyle="butt")
        for end, limit, mark in ((row["low"], LEFT, "<"), (row["high"], RIGHT, ">")):
            if (end - limit) * limit > 0:  # beyond the axis
                axis.plot(limit, place, mark, color=colour, markersize=6)
    if row["paper"] is not None:
        axis.plot(row["paper"], place, "D", color="black", mfc="white", markersize=5.5, zorder=3)
    fill = colour if row["low"] is not None else "white"
    mark = "s" if row["smaller"] else "o"
    axis.plot(row["ours"], place, mark, color=colour, mfc=fill, markersize=5, zorder=4)


def _draw_cells(axis: Axes, cells: dict[str, list[list[float]]]) -> None:
    ends = [LEAST, 100.5]
    low, high = ([end + by for end in ends] for by in (-NEAR, NEAR))
    axis.fill_between(ends, low, high, color="0.9", zorder=0)
    axis.plot(ends, ends, color="black", linewidth=0.8)
    edge: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.5}
    for paper, pairs in cells.items():
        drawn = edge | {"color": _colour(paper)}
        inside = [pair for pair in pairs if min(pair) >= LEAST]
        axis.plot(*zip(*inside, strict=True), "o", markersize=6, label=paper, **drawn)
        outside = [(max(x, LEAST), max(y, LEAST)) for x, y in pairs if min(x, y) < LEAST]
        if outside:
            axis.plot(*zip(*outside, strict=True), "v", markersize=7, clip_on=False, **drawn)
    axis.set_xlim(*ends)
    axis.set_ylim(*ends)
    axis.grid(alpha=0.25)
    axis.set_ylabel("ours (%)")
    axis.set_title("The same numbers? A dot per cell", loc="left", weight="bold", fontsize=12)


def _cells_label(stop: str) -> str:
    return f"accuracy in the paper (%){stop}triangles: one is below {LEAST:.0f} %"


def _cells_legend(axis: Axes, title: str, cells: dict[str, list[list[float]]], **place: Any) -> None:
    """Name the dots; fold the names if the title has several lines."""
    handles, papers = axis.get_legend_handles_labels()
    names = []
    for paper in papers:
        near = sum(abs(ours - printed) <= NEAR for printed, ours in cells[paper])
        counted = f"{paper_title(paper)}: {near} of {len(cells[paper])}"
        names.append(counted if "\n" not in title else _wrap_title(counted.replace(": ", "\n")))
    look: dict[str, Any] = {"fontsize": 8.5, "title_fontsize": 8.5, "handletextpad": 0.1, "frameon": False}
    axis.legend(handles, names, title=title, alignment="left", **look, **place)


def _absent(data: dict[str, Any]) -> str:
    """Say which papers have no dots, and why."""
    return "no dots: " + ", ".join(
        _absence(paper) for paper in data["verdicts"] if paper not in data["cells"]
    )


def _absence(paper: str) -> str:
    """Say why a paper has no cell to compare."""
    prints = any(
        cell.paper_mean is not None
        for table in paper_tables.tables(paper).values()
        for cell in table.cells()
    )
    return f"{paper_title(paper)} ({'run smaller' if prints else 'prints curves'})"


def _draw_verdicts(axis: Axes, verdicts: dict[str, dict[str, int]]) -> None:
    """Draw a bar for each paper with the verdicts on its pairs, below its name and the number not run."""
    for place, (paper, counts) in enumerate(verdicts.items()):
        _draw_bar(axis, place, counts)
        above: dict[str, Any] = {"va": "bottom", "fontsize": 9, "weight": "bold"}
        name = axis.text(0, place - 0.27, paper_title(paper), color=_colour(paper), **above)
        rest: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}
        axis.annotate(f"{counts[NOT_RUN]} more not run", (1, 0.5), (8, 0), xycoords=name, **rest)
    axis.set_yticks([])
    axis.set_ylim(len(verdicts) - 0.6, -0.75)
    axis.spines["left"].set_visible(False)
    axis.set_xlabel(
        "pairs that were run; on the left, the main claim's alone\n"
        f"{UNDECIDED}: one seed, or p > 0.05 after Holm's correction"
    )
    axis.set_title("All claims, not only the main one", loc="left", weight="bold", fontsize=12, pad=24)
    names = [
        Rectangle((0, 0), 1, 1, facecolor=face, hatch=pattern, edgecolor="#333333", linewidth=0.6)
        for face, pattern, _ in BARS.values()
    ]
    axis.legend(
        names,
        list(BARS),
        loc="lower left",
        bbox_to_anchor=(-0.02, 0.99),
        ncols=3,
        fontsize=8.5,
        frameon=False,
        columnspacing=1.0,
        handlelength=1.2,
    )


def _draw_bar(axis: Axes, place: int, counts: dict[str, int]) -> None:
    start = 0
    edge: dict[str, Any] = {"height": 0.42, "edgecolor": "#333333", "linewidth": 0.6}
    for verdict, (face, pattern, letters) in BARS.items():
        count = counts[verdict]
        axis.barh(place, count, left=start, facecolor=face, hatch=pattern, **edge)
        high = place if count > FEW else place + 0.31  # below a bar that is too short
        colour = letters if count > FEW else "black"
        if count:
            axis.text(
                start + count / 2, high, str(count), color=colour, ha="center", va="center", fontsize=9
            )
        start += count


def _wrap_title(title: str) -> str:
    return title.replace(" ", "\n", 1)


DRAWINGS = {"overview.png": draw_wide, "overview-narrow.png": draw_narrow}
