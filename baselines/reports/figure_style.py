"""How figures look: sizes of a paper, lines that survive grey and lie on each other, ticks to read."""

import math
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

SCREEN: dict[Any, Any] = {
    "font.size": 10.0,
    "legend.fontsize": 9.0,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}
PAPER: dict[Any, Any] = {
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
    "pdf.fonttype": 42,  # fonts that a publisher can embed
}
# Okabe and Ito's colours, which the colour-blind tell apart; with them dashes and marks, so that grey does
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)))
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = len(COLOURS) * len(DASHES) * len(MARKS)  # no two of so many look alike
MARKS_ON_A_CURVE = 7
ALIKE = 0.005  # of the panel's height: curves so close hide each other


def looks(count: int) -> list[dict[str, Any]]:
    """Return the colour, dashes and mark of each of so many lines."""
    every = zip(cycle(COLOURS), cycle(DASHES), cycle(MARKS), strict=False)
    return [
        {"color": colour, "linestyle": dash, "marker": mark} for colour, dash, mark in islice(every, count)
    ]


def marks_at(place: int, count: int, points: int) -> tuple[int, int]:
    """Return (first, every) of a curve's marks, beside those of the other curves."""
    every = max(1, points // MARKS_ON_A_CURVE)
    return place * max(1, every // count) % every, every


def widths(curves: Sequence[tuple[np.ndarray, np.ndarray]], thin: float) -> list[float]:
    """Return the width of each line (x, y): one that others lie on is drawn wider, and shows."""
    values = np.concatenate([y[np.isfinite(y)] for _, y in curves])
    near = ALIKE * float(np.ptp(values)) if len(values) else 0.0
    return [
        thin * (1 + 1.3 * min(3, sum(_alike(curve, later, near) for later in curves[place + 1 :])))
        for place, curve in enumerate(curves)
    ]


def _alike(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray], near: float) -> bool:
    if one[0].shape != other[0].shape or not np.array_equal(one[0], other[0]):
        return False
    return bool(np.allclose(one[1], other[1], rtol=0, atol=near, equal_nan=True))


def logarithmic(low: float, high: float) -> bool:
    """Say whether an axis from ``low`` to ``high`` is: positive values that differ much."""
    return low > 0 and high > 4 * low and math.isfinite(low + high)


def log_ticks(low: float, high: float) -> LogLocator:
    """Return where a logarithmic axis has numbers: some in each decade where there are few decades."""
    decades = math.log10(high / low)
    return LogLocator(subs=(1.0,) if decades > 3 else (1.0, 3.0) if decades > 1.5 else (1.0, 2.0, 5.0))


def scale_y(axis: Axes, low: float, high: float) -> None:
    """Make the axis logarithmic where that is better, with numbers to read."""
    if not logarithmic(low, high):
        return
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(log_ticks(low, high))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    if math.log10(high / low) > 8:
        axis.yaxis.set_minor_locator(NullLocator())


def finish(axis: Axes, x: str, title: str) -> None:
    """Label the axes and take away what says nothing."""
    axis.set_xlabel(x)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=x == "round"))
    axis.set_ylabel(title)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
