"""The picture of a table: paper and ours side by side, or curves with their spread."""

import textwrap
from pathlib import Path

import pandas as pd

from .curve_figure import curves
from .numbers import Results
from .panels import plt
from .paper_tables import PaperTable
from .point_figures import along, dots


def draw(table: PaperTable, results: Results, points: pd.DataFrame, folder: Path) -> Path | None:
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
