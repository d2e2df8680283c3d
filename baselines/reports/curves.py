"""Curves by round, by time or by bytes: of one run, or of many with their spread over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from baselines import results
from baselines.errors import UserError

from . import WIDTHS
from .names import line_styles
from .runs import Panel, choose, mean_of_all
from .statistics import interval

# How figures look: sizes for a paper, lines that stay distinct in grey or when they overlap, readable ticks.


SCREEN_STYLE: dict[Any, Any] = {
    "font.size": 10.0,
    "legend.fontsize": 9.0,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}
PAPER_STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.title_fontsize": 7.0,
    "axes.linewidth": 0.6,
    "grid.linewidth": 0.4,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "pdf.fonttype": 42,  # embeddable fonts
}
MARKS_ON_A_CURVE = 7
MIN_DISTANCE = 0.005  # of the range of values: closer curves hide each other


def mark_positions(place: int, count: int, points: int) -> tuple[int, int]:
    """Return (first, every) of a curve's marks, offset from those of other curves."""
    every = max(1, points // MARKS_ON_A_CURVE)
    return place * max(1, every // count) % every, every


def line_widths(curves: Sequence[tuple[np.ndarray, np.ndarray]], thin: float) -> list[float]:
    """Return the width of each line (x, y): one hidden by later ones is drawn wider, so that it shows."""
    values = np.concatenate([y[np.isfinite(y)] for _, y in curves])
    near = MIN_DISTANCE * float(np.ptp(values)) if len(values) else 0.0
    return [
        thin * (1 + 1.3 * min(3, sum(_alike(curve, later, near) for later in curves[place + 1 :])))
        for place, curve in enumerate(curves)
    ]


def _alike(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray], near: float) -> bool:
    if one[0].shape != other[0].shape or not np.array_equal(one[0], other[0]):
        return False
    return bool(np.allclose(one[1], other[1], rtol=0, atol=near, equal_nan=True))


def is_logarithmic(low: float, high: float) -> bool:
    """Say whether an axis should be logarithmic: all values positive, the highest over 4 times the lowest."""
    return low > 0 and high > 4 * low and math.isfinite(low + high)


def log_ticks(low: float, high: float) -> LogLocator:
    """Return the ticks of a logarithmic axis: several per decade if there are few decades."""
    decades = math.log10(high / low)
    return LogLocator(subs=(1.0,) if decades > 3 else (1.0, 3.0) if decades > 1.5 else (1.0, 2.0, 5.0))


def scale_y(axis: Axes, low: float, high: float) -> None:
    """Make the axis logarithmic, with readable ticks, if :func:`is_logarithmic`."""
    if not is_logarithmic(low, high):
        return
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(log_ticks(low, high))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    if math.log10(high / low) > 8:
        axis.yaxis.set_minor_locator(NullLocator())


def finish_axes(axis: Axes, x: str, title: str) -> None:
    """Label the axes and remove needless lines."""
    axis.set_xlabel(x)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=x == "round"))
    axis.set_ylabel(title)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


mpl.use("Agg")


PANEL_WIDTH, CHARACTERS = 4.6, 103.5  # inches; characters per inch of the legend at one point
FIGURE_SUFFIXES = (".png", ".pdf", ".svg")
BAND_WORDS = {
    "std": "; bands: one standard deviation to each side",
    "ci": "; bands: 95 % confidence interval of the mean",
    "minmax": "; bands: from the lowest to the highest seed",
    "none": "",
}


@dataclass(frozen=True)
class Drawing:
    """What to draw in a figure.

    Parameters
    ----------
    metrics : ``metric`` or ``split/metric``, a panel each; none: whatever was measured
    x : the horizontal axis: the round, or the real or virtual seconds, or the bytes, spent until then
    width : of a paper, ``column`` or ``page``; None: for a screen
    band : one standard deviation (``std``), the mean's 95 % interval (``ci``), all seeds (``minmax``), none
    limits : of the first metric's axis, in its unit
    """

    metrics: tuple[str, ...] = ()
    x: str = "round"
    width: str | None = None
    band: str = "std"
    limits: tuple[float, float] | None = None


def check_name(target: Path) -> None:
    """Raise ``UserError`` unless ``--figure`` has a supported file type."""
    if target.suffix not in FIGURE_SUFFIXES:
        raise UserError(f"--figure {target}: expected a name that ends in .png, .pdf or .svg")


def draw_run(folder: Path) -> None:
    """Draw a run's own metrics into ``figures/metrics.png``."""
    rows = pd.read_csv(folder / "metrics.csv")
    draw(rows.assign(setting="", seed=0), folder / "figures" / "metrics.png")


def draw(
    frame: pd.DataFrame,
    target: Path,
    drawing: Drawing | None = None,
    panels: Mapping[str, pd.DataFrame] | None = None,
) -> str | None:
    """Draw a line per setting, the mean over seeds, with the band that ``drawing`` names.

    ``frame`` is that of :func:`baselines.results.load`, ``panels`` are its parts side by side, by title. A
    constant step size has no panel; with nothing to draw, no figure is written. Return the line that
    explains the bands, None without a figure; a figure for a paper leaves it to the caption.
    """
    drawing, parts = drawing or Drawing(), panels or {"": frame}
    metrics = choose(frame, drawing.metrics, step_size=not drawing.metrics)
    if not metrics:
        return None
    labels = list(frame.setting.unique())
    caption = describe_bands(frame, drawing.band)
    paper = WIDTHS.get(drawing.width or "")
    with mpl.rc_context(PAPER_STYLE if paper else SCREEN_STYLE):
        figure, axes = _figure(len(metrics), labels, paper, len(parts))
        cells = [(panel, title) for panel in metrics for title in parts]
        for axis, (panel, title) in zip(axes, cells, strict=True):
            _panel(axis, parts[title], labels, panel, drawing)
            axis.set_title(title, fontsize="medium")
            if drawing.limits and panel == metrics[0]:
                axis.set_ylim(*drawing.limits)
        _legend(figure, axes[0], labels, caption, above=bool(paper))
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=300 if paper else 150)
    plt.close(figure)
    return caption


def describe_bands(frame: pd.DataFrame, band: str = "std") -> str:
    """Return the caption: the number of seeds, and the meaning of the bands."""
    seeds = frame.groupby("setting").seed.nunique()
    if seeds.max() == 1:
        return ""
    low, high = seeds.min(), seeds.max()
    counted = f"{high} seeds" if low == high else f"{low} to {high} seeds"
    last = frame.groupby(results.RUN)["round"].max().groupby("setting").nunique()
    ends = " A line ends with the first of its runs." if last.max() > 1 else ""
    return f"Mean over {counted}{BAND_WORDS[band]}.{ends}"


AXIS_SETTINGS = {  # what gives a run an axis that it lacks
    "bytes": "count_bytes=true",
    "seconds": "this version",
    "virtual_seconds": "a clock, e.g. clock=lognormal",
}


def with_x(frame: pd.DataFrame, rows: pd.DataFrame, x: str) -> pd.DataFrame:
    """Return rows by round with a column ``x``: the round, or what was spent until then.

    Raises
    ------
    UserError : when a run has not recorded its bytes, or its seconds
    """
    if x == "round":
        return rows.assign(x=rows["round"].astype(float))
    names = ("bytes_down", "bytes_up") if x == "bytes" else (x,)
    spent = frame[(frame.split == "train") & frame.metric.isin(names)]
    by_round = spent.groupby([*results.RUN, "round"]).value.sum().rename("spent").reset_index()
    by_round["x"] = by_round.groupby(results.RUN).spent.cumsum()
    if missing := sorted(set(rows.setting) - set(by_round.setting)):
        named = missing[0] or "the run"
        raise UserError(f"--x {x}: {named} has not counted them; run it with {AXIS_SETTINGS[x]}")
    joined = rows.merge(by_round[[*results.RUN, "round", "x"]], on=[*results.RUN, "round"], how="left")
    joined.loc[joined["round"] == 0, "x"] = 0.0
    return joined


def statistics(frame: pd.DataFrame, panel: Panel, x: str, band: str = "std") -> pd.DataFrame:
    """Return a metric's mean, std and band over seeds, and the mean x, by setting and round.

    All are NaN if a seed has diverged. The band goes from ``low`` to ``high``. Only rounds that all seeds
    have count: otherwise the mean would jump where one has ended.
    """
    if not results.has(frame, panel.metric, panel.split):  # in this one of several panels
        index = pd.MultiIndex.from_tuples([], names=["setting", "round"])
        return pd.DataFrame(columns=["std", "x", "mean", "low", "high"], index=index, dtype=float)
    rows = with_x(frame, results.by_round(frame, panel.metric, panel.split), x)
    by = ["setting", "round"]
    num_seeds, all_seeds = (rows.groupby(key).seed.transform("nunique") for key in (by, "setting"))
    rows = rows[num_seeds == all_seeds]
    spreads = rows.groupby(by).agg(std=("value", "std"), x=("x", "mean"))
    mean = mean_of_all(rows, by)
    spreads = spreads.assign(mean=mean, std=spreads["std"].fillna(0.0).where(mean.notna()))
    if band == "minmax":
        ends = rows.groupby(by).value.agg(["min", "max"]).where(mean.notna())
        return spreads.assign(low=ends["min"], high=ends["max"])
    half = rows.groupby(by).value.agg(interval) if band == "ci" else spreads["std"] * (band == "std")
    return spreads.assign(low=mean - half, high=mean + half)


def unit_of(x: str, most: float) -> tuple[str, float]:
    """Return the label of the axis, and the divisor of x."""
    if x != "bytes":
        labels = {"seconds": "training time (s)", "virtual_seconds": "virtual time (s)"}
        return labels.get(x, "round"), 1.0
    size = max((s for s in (1e9, 1e6, 1e3) if most >= s), default=1.0)
    names = {1e9: "GB", 1e6: "MB", 1e3: "kB", 1.0: "bytes"}
    return f"sent, down and up ({names[size]})", size


def _figure(count: int, labels: list[str], paper: float | None, parts: int) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with room for its legend; in a column, the panels are below each other.

    With several parts, each metric has them side by side in a row, at most four.
    """
    columns = 1 if paper and paper < 4 else min(count, 3) if paper else count
    if parts > 1:
        columns, count = min(parts, 2 if paper and paper < 4 else 4), count * parts
    rows = -(-count // columns)
    width = paper or max(PANEL_WIDTH * columns, _entry(labels))
    height = (2.1 if paper else 3.4) * rows + (0.15 if paper else 0.2) * (_lines(labels, width) + 1)
    figure, grid = plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained")
    axes = list(grid.flat)
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def _panel(axis: Axes, frame: pd.DataFrame, labels: list[str], panel: Panel, drawing: Drawing) -> None:
    statistic = statistics(frame, panel, drawing.x, drawing.band)
    unit, size = unit_of(drawing.x, statistic.x.max())
    curves = [statistic.loc[label] if label in statistic.index else statistic.iloc[:0] for label in labels]
    points = [(own.x.to_numpy(), own["mean"].to_numpy()) for own in curves]
    widths = line_widths(points, mpl.rcParams["lines.linewidth"])
    looks = line_styles(labels)
    factor = 100.0 if panel.percent else 1.0
    for place, (label, own) in enumerate(zip(labels, curves, strict=True)):
        marks = mark_positions(place, len(labels), len(own))
        at = own.x / size
        look = looks[place] | {"linewidth": widths[place], "markevery": marks}
        if len(labels) == 1:
            look["marker"] = None if len(own) > 1 else "o"
        mean, low, high = (factor * own[name] for name in ("mean", "low", "high"))
        axis.plot(at, mean, label=label, markeredgecolor="white", markeredgewidth=0.4, **look)
        if drawing.band != "none":
            axis.fill_between(at, low, high, color=looks[place]["color"], alpha=0.15, linewidth=0)
    finite = statistic["mean"][np.isfinite(statistic["mean"])]
    if not panel.percent and len(finite):
        scale_y(axis, finite.min(), finite.max())
    finish_axes(axis, unit, panel.title + " (%)" * panel.percent)


def _legend(figure: Figure, axis: Axes, labels: list[str], caption: str, above: bool) -> None:
    """Draw the legend in columns: below with a note on the bands, or above if a caption explains them."""
    caption = "" if above else caption
    if any(labels):
        handles, names = axis.get_legend_handles_labels()
        lines = _lines(labels, figure.get_size_inches()[0])
        columns = -(-len(labels) // lines)
        place: Literal["outside upper left", "outside lower left"]
        place = "outside upper left" if above else "outside lower left"
        figure.legend(
            handles, names, loc=place, ncols=columns, frameon=False, handlelength=3.2,
            title=caption or None, alignment="left",
        )  # fmt: skip
    elif caption:
        figure.supxlabel(caption, fontsize="small")


def _entry(labels: list[str]) -> float:
    """Return the width of the legend's widest entry, in inches."""
    points = mpl.rcParams["legend.fontsize"]
    size = float(points) if isinstance(points, int | float) else 9.0
    return 0.075 * size + max(map(len, labels)) * size / CHARACTERS


def _lines(labels: list[str], width: float) -> int:
    return -(-len(labels) // max(1, int(width / _entry(labels)))) if any(labels) else 0
