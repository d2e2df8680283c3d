"""Panels of a figure that is written to a file, and what all of them look like."""

from collections.abc import Sequence
from textwrap import fill

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["COLUMNS", "finish", "panelled", "plt"]

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


def finish(axis: Axes, x: str, y: str) -> None:
    """Label the axes; y stands at the first column alone."""
    axis.set_xlabel(x)
    place = axis.get_subplotspec()
    if place is None or place.is_first_col():
        axis.set_ylabel(fill(y, LABEL))
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
