"""Curves by round, by time or by bytes: of one run, or of many with their spread over seeds."""

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from baselines import results
from baselines.errors import UserError

from . import WIDTHS
from . import figure_style as style
from .measurements import mean_of_all
from .shown import Shown, choose

PANEL_WIDTH, CHARACTERS = 4.6, 103.5  # inches; of the legend's text in an inch at a size of one point
KINDS = (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class Drawing:
    """What a figure shows.

    Parameters
    ----------
    metrics : ``metric`` or ``split/metric``, a panel each; none: whatever was measured
    x : what the curves go by: the round, or the seconds or bytes that it took to get there
    width : of a paper, ``column`` or ``page``; None: for a screen
    """

    metrics: tuple[str, ...] = ()
    x: str = "round"
    width: str | None = None


def check_name(target: Path) -> None:
    """Raise ``UserError`` unless ``--figure`` names a figure of a kind that can be drawn."""
    if target.suffix not in KINDS:
        raise UserError(f"--figure {target}: expected a name that ends in .png, .pdf or .svg")


def draw_run(folder: Path) -> None:
    """Draw a run's own metrics into ``figures/metrics.png``."""
    rows = pd.read_csv(folder / "metrics.csv")
    draw(rows.assign(setting="", seed=0), folder / "figures" / "metrics.png")


def draw(frame: pd.DataFrame, target: Path, drawing: Drawing | None = None) -> str | None:
    """Draw a line per setting, the mean over seeds, with a band of one standard deviation.

    ``frame`` is that of :func:`baselines.results.load`. A step size that is the same in all rounds has no
    panel; with nothing to draw, no figure is written. Returns the line that says what the bands are.
    """
    drawing = drawing or Drawing()
    panels = choose(frame, drawing.metrics, step_size=not drawing.metrics)
    if not panels:
        return None
    labels = list(frame.setting.unique())
    caption = says(frame)
    paper = WIDTHS.get(drawing.width or "")
    with mpl.rc_context(style.PAPER if paper else style.SCREEN):
        figure, axes = _figure(len(panels), labels, paper)
        for axis, shown in zip(axes, panels, strict=True):
            _panel(axis, frame, labels, shown, drawing.x)
        _legend(figure, axes[0], labels, caption)
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=300 if paper else 150)
    plt.close(figure)
    return caption


def says(frame: pd.DataFrame) -> str:
    """Return the caption: over how many seeds the means are, and what the bands are."""
    seeds = frame.groupby("setting").seed.nunique()
    if seeds.max() == 1:
        return ""
    low, high = seeds.min(), seeds.max()
    counted = f"{high} seeds" if low == high else f"{low} to {high} seeds"
    last = frame.groupby(results.RUN)["round"].max().groupby("setting").nunique()
    ends = " A line ends with the first of its runs." if last.max() > 1 else ""
    return f"Mean over {counted}; bands: one standard deviation to each side.{ends}"


def with_x(frame: pd.DataFrame, rows: pd.DataFrame, x: str) -> pd.DataFrame:
    """Return rows by round with a column ``x``: the round, or what had been spent up to it.

    Raises
    ------
    UserError : when a run has not counted its bytes
    """
    if x == "round":
        return rows.assign(x=rows["round"].astype(float))
    names = ("seconds",) if x == "seconds" else ("bytes_down", "bytes_up")
    spent = frame[(frame.split == "train") & frame.metric.isin(names)]
    by_round = spent.groupby([*results.RUN, "round"]).value.sum().rename("spent").reset_index()
    by_round["x"] = by_round.groupby(results.RUN).spent.cumsum()
    if missing := sorted(set(rows.setting) - set(by_round.setting)):
        named = missing[0] or "the run"
        raise UserError(f"--x {x}: {named} has not counted them; run it with count_bytes=true")
    joined = rows.merge(by_round[[*results.RUN, "round", "x"]], on=[*results.RUN, "round"], how="left")
    joined.loc[joined["round"] == 0, "x"] = 0.0
    return joined


def statistics(frame: pd.DataFrame, shown: Shown, x: str) -> pd.DataFrame:
    """Return a metric's mean and standard deviation over seeds, and the mean x, by setting and round.

    Both are NaN where a seed has diverged. Only rounds that all seeds have: a mean over those that are left
    would jump where one has ended.
    """
    rows = with_x(frame, results.by_round(frame, shown.metric, shown.split), x)
    by = ["setting", "round"]
    there, all_seeds = (rows.groupby(key).seed.transform("nunique") for key in (by, "setting"))
    rows = rows[there == all_seeds]
    found = rows.groupby(by).agg(std=("value", "std"), x=("x", "mean"))
    mean = mean_of_all(rows, by)
    return found.assign(mean=mean, std=found["std"].fillna(0.0).where(mean.notna()))


def unit_of(x: str, most: float) -> tuple[str, float]:
    """Return the label of the axis and what x is divided by."""
    if x != "bytes":
        return ("seconds" if x == "seconds" else "round"), 1.0
    size = max((s for s in (1e9, 1e6, 1e3) if most >= s), default=1.0)
    names = {1e9: "GB", 1e6: "MB", 1e3: "kB", 1.0: "bytes"}
    return f"{names[size]} sent, down and up", size


def _figure(count: int, labels: list[str], paper: float | None) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with room for its legend; in a column the panels stand below each other."""
    columns = 1 if paper and paper < 4 else min(count, 3) if paper else count
    rows = -(-count // columns)
    width = paper or max(PANEL_WIDTH * count, _entry(labels))
    height = (2.1 if paper else 3.4) * rows + (0.15 if paper else 0.2) * (_lines(labels, width) + 1)
    figure, grid = plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained")
    axes = list(grid.flat)
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def _panel(axis: Axes, frame: pd.DataFrame, labels: list[str], shown: Shown, x: str) -> None:
    found = statistics(frame, shown, x)
    unit, size = unit_of(x, found.x.max())
    there = [found.loc[label] if label in found.index else found.iloc[:0] for label in labels]
    points = [(own.x.to_numpy(), own["mean"].to_numpy()) for own in there]
    widths = style.widths(points, mpl.rcParams["lines.linewidth"])
    looks = style.looks(len(labels))
    for place, (label, own) in enumerate(zip(labels, there, strict=True)):
        marks = style.marks_at(place, len(labels), len(own))
        at = own.x / size
        look = looks[place] | {"linewidth": widths[place], "markevery": marks}
        if len(labels) == 1:
            look["marker"] = None if len(own) > 1 else "o"
        axis.plot(at, own["mean"], label=label, markeredgecolor="white", markeredgewidth=0.4, **look)
        low, high = own["mean"] - own["std"], own["mean"] + own["std"]
        axis.fill_between(at, low, high, color=looks[place]["color"], alpha=0.15, linewidth=0)
    if shown.metric != "accuracy":
        finite = found["mean"][np.isfinite(found["mean"])]
        style.scale_y(axis, finite.min(), finite.max())
    style.finish(axis, unit, shown.title)


def _legend(figure: Figure, axis: Axes, labels: list[str], caption: str) -> None:
    if any(labels):
        handles, names = axis.get_legend_handles_labels()
        lines = _lines(labels, figure.get_size_inches()[0])
        columns = -(-len(labels) // lines)
        figure.legend(
            handles, names, loc="outside lower left", ncols=columns, frameon=False, handlelength=3.2,
            title=caption or None, alignment="left",
        )  # fmt: skip
    elif caption:
        figure.supxlabel(caption, fontsize="small")


def _entry(labels: list[str]) -> float:
    """Return how wide an entry of the legend is, in inches."""
    points = mpl.rcParams["legend.fontsize"]
    size = float(points) if isinstance(points, int | float) else 9.0
    return 0.075 * size + max(map(len, labels)) * size / CHARACTERS


def _lines(labels: list[str], width: float) -> int:
    return -(-len(labels) // max(1, int(width / _entry(labels)))) if any(labels) else 0
