"""The figure of the front page, drawn from the committed tables.

Left, the gain of each paper's method over its baseline, printed and ours; right, each cell whose accuracy
is printed; below, the verdicts on all claims of a paper. The numbers are in the file, too (``read_data``),
so that a test can compare them with the tables.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image

from baselines.reports.names import COLOURS, cell_name, method_style, value_name

from . import paper_tables, results
from .claims import SMALLER, Claim, find_claims, paper_title
from .findings import CONFIRMED, CONTRADICTED, NOT_RUN, UNDECIDED, Comparison

mpl.use("Agg")

KEY = "Description"  # of the PNG file's texts
LEFT, RIGHT = -8.0, 13.0  # percentage points: intervals end there
LEAST = 85.0  # per cent: cells below are drawn at the edge
NEAR = 1.0  # percentage point
BARS = {CONFIRMED: COLOURS["blue"], UNDECIDED: "#BBBBBB", CONTRADICTED: COLOURS["vermillion"]}


def overview_data(papers: Sequence[str]) -> dict[str, Any]:
    """Return all numbers of the figure: ``gains``, ``cells`` and ``verdicts`` by paper."""
    return {
        "gains": {_contrast(paper): gains for paper in papers if (gains := _gains(paper))},
        "cells": {paper: cells for paper in papers if (cells := _cells(paper))},
        "verdicts": {paper_title(paper): _verdicts(paper) for paper in papers},
    }


def _contrast(paper: str) -> str:
    """Return what the paper's headline claim compares: "FedER − FedAvg"."""
    found = (finding for table in paper_tables.tables(paper).values() for finding in table.findings)
    finding = next(finding for finding in found if finding.get("headline"))
    better, worse = (value_name(paper_tables.texts(finding[side])[0]) for side in ("better", "worse"))
    return f"{better} \N{MINUS SIGN} {worse}"


def _gains(paper: str) -> list[dict[str, Any]]:
    """Return a row for each pair of the paper's headline claim, against its first baseline alone."""
    claims = [claim for claim in find_claims(paper) if claim.headline and claim.run]
    if not claims:
        return []
    claim = claims[0]
    pairs = [pair for pair in claim.run if pair.points is not None and _is_first(claim, pair)]
    is_printed = any(pair.paper is not None for pair in pairs)
    shown = [pair for pair in pairs if pair.paper is not None or not is_printed]
    rows = [_gain(pair, claim.text.endswith(SMALLER)) for pair in shown]
    return list({row["name"]: row for row in reversed(rows)}.values())[::-1]  # of several the first setting


def _is_first(claim: Claim, pair: Comparison) -> bool:
    against = [one.keys["against"] for one in claim.run if "against" in one.keys]
    return not against or pair.keys.get("against") == against[0]


def _gain(pair: Comparison, is_smaller: bool) -> dict[str, Any]:
    assert pair.points is not None
    assert pair.ours is not None
    low, high = pair.interval or (None, None)
    numbers = {"paper": pair.paper, "ours": pair.ours, "low": low, "high": high}
    scaled = {
        key: None if value is None else round(value * pair.points, 4) for key, value in numbers.items()
    }
    keys = {column: value for column, value in pair.keys.items() if column != "against"}
    name = ", ".join(filter(None, [pair.label, cell_name(keys)]))
    return {"name": name, "seeds": pair.seeds, "smaller": is_smaller, **scaled}


def _cells(paper: str) -> list[list[float]]:
    """Return (paper, ours) in per cent of every cell that was run in the paper's setting."""
    found = []
    for name, table in paper_tables.tables(paper).items():
        factor = table.points
        if factor is None or table.measure is not None or table.beside or table.split == "train":
            continue  # no accuracy, or another reading of cells that are here already
        rows = results.read(paper_tables.PAPERS / paper / "ours" / f"{name}.csv")
        ours = results.ours(results.settings(table, rows, {}))
        for cell in table.cells():
            one = ours.get(tuple(cell.keys.values()))
            if one is not None and not one.changes and cell.paper_mean is not None:
                found.append([round(cell.paper_mean * factor, 4), round(one.mean * factor, 4)])
    return found


def _verdicts(paper: str) -> dict[str, int]:
    claims = find_claims(paper)
    return {
        verdict: sum(claim.counts[verdict] for claim in claims)
        for verdict in (CONFIRMED, UNDECIDED, CONTRADICTED, NOT_RUN)
    }


def read_data(path: Path) -> dict[str, Any]:
    """Return the numbers that a figure was drawn from."""
    with Image.open(path) as image:
        found = json.loads(image.text[KEY])  # type: ignore[attr-defined]
    assert isinstance(found, dict)
    return found


def draw_overview(papers: Sequence[str], target: Path) -> Path:
    """Draw the figure, unless it has the same numbers already; return its path."""
    data = overview_data(papers)
    if target.exists() and read_data(target) == data:
        return target
    rows = sum(len(gains) + 2 for gains in data["gains"].values())
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = plt.figure(figsize=(14, 1.6 + 0.2 * rows), layout="constrained")
        grid = figure.add_gridspec(2, 2, width_ratios=(1.75, 1), height_ratios=(1.15, 1))
        _draw_gains(figure.add_subplot(grid[:, 0]), data["gains"])
        _draw_cells(figure.add_subplot(grid[0, 1]), data["cells"])
        _draw_verdicts(figure.add_subplot(grid[1, 1]), data["verdicts"])
        figure.savefig(target, dpi=110, metadata={KEY: json.dumps(data)})
    plt.close(figure)
    return target


def _draw_gains(axis: Axes, gains: dict[str, list[dict[str, Any]]]) -> None:
    place, ticks = 0, []
    for title, rows in gains.items():
        mark = " †" if rows[0]["smaller"] else ""
        ticks.append((place, title + mark))
        place += 1
        for row in rows:
            _draw_gain(axis, row, place)
            ticks.append((place, row["name"]))
            place += 1
        place += 1
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_yticks(*zip(*ticks, strict=True), fontsize=8.5)
    for label in axis.get_yticklabels():
        if label.get_text().removesuffix(" †") in gains:
            label.set(weight="bold", fontsize=10)
    axis.set_ylim(place - 0.8, -0.8)
    axis.set_xlim(LEFT, RIGHT + 1)
    axis.text(RIGHT + 1, -0.9, "seeds", fontsize=8, color="0.35", ha="right", va="bottom")
    axis.grid(axis="x", alpha=0.25)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("gain in test accuracy (percentage points); right of 0, the paper's method is ahead")
    axis.set_title("Does the method gain over its baseline?", loc="left", weight="bold", fontsize=12)
    blue = COLOURS["blue"]
    handles = [
        Line2D([], [], marker="D", color="black", mfc="white", linestyle="", label="printed in the paper"),
        Line2D([], [], marker="o", color=blue, label="ours, with its 95 % interval over seeds"),
        Line2D([], [], marker="o", color=blue, mfc="white", linestyle="", label="ours, one seed"),
        Line2D([], [], marker="o", color=COLOURS["grey"], label="† ours, in a smaller setting"),
    ]
    axis.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.3, -0.045),
        ncols=2,
        fontsize=9,
        frameon=False,
    )


def _draw_gain(axis: Axes, row: dict[str, Any], place: int) -> None:
    colour = COLOURS["grey"] if row["smaller"] else COLOURS["blue"]
    if row["low"] is not None:
        low, high = max(row["low"], LEFT), min(row["high"], RIGHT)
        axis.plot([low, high], [place, place], color=colour, linewidth=1.6, solid_capstyle="butt")
        for end, limit, mark in ((row["low"], LEFT, "<"), (row["high"], RIGHT, ">")):
            if (end - limit) * limit > 0:  # it goes on
                axis.plot(limit, place, mark, color=colour, markersize=5, clip_on=False)
    if row["paper"] is not None:
        axis.plot(row["paper"], place, "D", color="black", mfc="white", markersize=5.5, zorder=3)
    fill = colour if row["low"] is not None else "white"
    axis.plot(row["ours"], place, "o", color=colour, mfc=fill, markersize=5, zorder=4)
    axis.text(RIGHT + 1, place, str(row["seeds"]), fontsize=7.5, color="0.35", ha="right", va="center")


def _draw_cells(axis: Axes, cells: dict[str, list[list[float]]]) -> None:
    axis.fill_between(
        [LEAST, 100.5], [LEAST - NEAR, 100.5 - NEAR], [LEAST + NEAR, 100.5 + NEAR], color="0.9", zorder=0
    )
    axis.plot([LEAST, 100.5], [LEAST, 100.5], color="black", linewidth=0.8)
    for paper, pairs in cells.items():
        style = method_style(paper)  # a paper is called as its method
        colour = COLOURS[style[0] if style else "black"]
        near = sum(abs(ours - printed) <= NEAR for printed, ours in pairs)
        label = f"{_folded(paper_title(paper))}\n{near} of {len(pairs)}"
        inside = [pair for pair in pairs if min(pair) >= LEAST]
        drawn: dict[str, Any] = {"color": colour, "markeredgecolor": "white", "markeredgewidth": 0.5}
        axis.plot(*zip(*inside, strict=True), "o", markersize=6, label=label, **drawn)
        outside = [(max(x, LEAST), max(y, LEAST)) for x, y in pairs if min(x, y) < LEAST]
        if outside:
            axis.plot(*zip(*outside, strict=True), "v", markersize=7, clip_on=False, **drawn)
    axis.set_xlim(LEAST, 100.5)
    axis.set_ylim(LEAST, 100.5)
    axis.grid(alpha=0.25)
    axis.set_xlabel(f"test accuracy in the paper (%); triangles lie below {LEAST:.0f} %")
    axis.set_ylabel("ours (%)")
    axis.set_title("The same numbers? A dot per cell", loc="left", weight="bold", fontsize=12)
    axis.legend(
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        fontsize=8.5,
        title=f"within {NEAR:.0f} point\nof the paper\n(grey band)",
        title_fontsize=8.5,
        alignment="left",
        handletextpad=0.1,
        frameon=False,
    )


def _draw_verdicts(axis: Axes, verdicts: dict[str, dict[str, int]]) -> None:
    for place, counts in enumerate(verdicts.values()):
        run = sum(counts[verdict] for verdict in BARS)
        start = 0.0
        for verdict, colour in BARS.items():
            share = 100 * counts[verdict] / max(run, 1)
            axis.barh(place, share, left=start, color=colour, height=0.62)
            if counts[verdict]:
                light = "white" if verdict != UNDECIDED else "black"
                size = 10 if share > 6 else 8
                axis.text(
                    start + share / 2,
                    place,
                    str(counts[verdict]),
                    color=light,
                    ha="center",
                    va="center",
                    fontsize=size,
                )
            start += share
        axis.text(102, place, f"{counts[NOT_RUN]} not run", color="0.35", va="center", fontsize=8.5)
    axis.set_yticks(range(len(verdicts)), [_folded(title) for title in verdicts])
    axis.set_ylim(len(verdicts) - 0.5, -0.5)
    axis.set_xlim(0, 125)
    axis.set_xticks([0, 25, 50, 75, 100])
    axis.set_xlabel(
        "pairs of cells that were run (%)\nundecided: 0 is in the interval, or one seed; smaller settings included"
    )
    axis.set_title("All claims, pair by pair", loc="left", weight="bold", fontsize=12, pad=24)
    names = [Rectangle((0, 0), 1, 1, color=colour) for colour in BARS.values()]
    axis.legend(
        names,
        list(BARS),
        loc="lower left",
        bbox_to_anchor=(-0.02, 0.99),
        ncols=3,
        fontsize=8.5,
        frameon=False,
        columnspacing=1.0,
        handlelength=1.0,
    )


def _folded(title: str) -> str:
    return title.replace(" ", "\n", 1)
