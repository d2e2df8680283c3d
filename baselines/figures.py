"""Figures: curves by round, of one run or of many with their spread over seeds."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

from .errors import UserError
from .summary import measured

PANELS = (
    ("test", "accuracy", "test accuracy"),
    ("test", "loss", "test loss"),
    ("train", "step_size", "server step size"),
)
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
    without any rows is left out; with no rows at all, no figure is written.
    """
    everything = pd.concat(curves.values())
    present = [
        panel
        for panel in PANELS
        if ((everything.split == panel[0]) & (everything.metric == panel[1])).any()
    ]
    if not present:
        return
    figure, axes = plt.subplots(
        1, len(present), figsize=(4.6 * len(present), 3.4), squeeze=False, layout="constrained"
    )
    for axis, (split, metric, title) in zip(axes[0], present, strict=True):
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
    if any(curves):
        axes[0][0].legend(frameon=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    plt.close(figure)
