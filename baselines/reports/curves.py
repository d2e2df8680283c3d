"""Curves by round, of one run or of many with their spread over seeds."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from cycler import cycler

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

from baselines.errors import UserError

from .summary import measured

PANELS = (
    ("test", "accuracy", "test accuracy"),
    ("test", "loss", "test loss"),
    ("train", "step_size", "server step size"),
)
STYLES = cycler(linestyle=["-", "--", ":", "-."]) * plt.rcParams["axes.prop_cycle"]  # 40 of them
PANEL_WIDTH, CHARACTERS = 4.6, 11.5  # inches; of the legend's text in an inch
KINDS = (".png", ".pdf", ".svg")


def check_name(target: Path) -> None:
    """Raise ``UserError`` unless ``--figure`` names a figure of a kind that can be drawn."""
    if target.suffix not in KINDS:
        raise UserError(f"--figure {target}: expected a name that ends in .png, .pdf or .svg")


def draw_run(folder: Path) -> None:
    """Draw a run's own metrics into ``figures/metrics.png``."""
    rows = pd.read_csv(folder / "metrics.csv")
    draw({"": rows.assign(seed=0)}, folder / "figures" / "metrics.png")


def draw(curves: dict[str, pd.DataFrame], target: Path) -> None:
    """Draw one line per label, the mean over seeds, with a band of one standard deviation.

    ``curves`` maps a label to the rows of metrics.csv of all its runs, with a column ``seed``. A panel
    without any rows is left out, as is a step size that is the same in all rounds; with no rows at all, no
    figure is written.
    """
    everything = pd.concat(curves.values())
    present = [panel for panel in PANELS if _has_something(everything, *panel[:2])]
    if not present:
        return
    entry = 0.65 + max(map(len, curves)) / CHARACTERS  # of the legend, inches
    width = max(PANEL_WIDTH * len(present), entry)
    columns = int(width / entry)
    lines = -(-len(curves) // columns) if any(curves) else 0
    figure, axes = plt.subplots(
        1, len(present), figsize=(width, 3.4 + 0.2 * lines), squeeze=False, layout="constrained"
    )
    for axis, (split, metric, title) in zip(axes[0], present, strict=True):
        axis.set_prop_cycle(STYLES)
        for label, rows in curves.items():
            stats = measured(rows, metric, split).groupby("round").agg(["mean", "std"]).fillna(0.0)
            (line,) = axis.plot(stats.index, stats["mean"], label=label, linewidth=1.6)
            low, high = stats["mean"] - stats["std"], stats["mean"] + stats["std"]
            axis.fill_between(stats.index, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        if metric == "loss" and (everything[everything.metric == "loss"].value > 0).all():
            axis.set_yscale("log")
        axis.set_xlabel("round")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    if lines:
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=9)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    plt.close(figure)


def _has_something(rows: pd.DataFrame, split: str, metric: str) -> bool:
    values = rows[(rows.split == split) & (rows.metric == metric)].value
    return len(values) > 0 and not (metric == "step_size" and (values == values.iloc[0]).all())
