"""Who holds what: a partition as a table of counts, nodes by labels, and as bars."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from rich import box
from rich.table import Table

from baselines.experiment.experiment import Experiment
from clients import Classification

mpl.use("Agg")
from matplotlib import pyplot as plt

MANY_NODES = 40  # of more nodes the table shows the first and the last
MANY_LABELS = 12  # so many have a column each


def counted(this: Experiment) -> np.ndarray | None:
    """Return how many examples [nodes, labels] each node of an experiment holds; None without labels.

    Labels are what partitioners go by: classes, or what the data set has in their place.
    """
    labels = this.dataset.labels_of("train")
    if this.dataset.site is not None or labels is None or labels.dtype.kind != "i":
        return None
    known = this.num_classes if isinstance(this.dataset.task, Classification) else None
    return count(this.partitions, labels, int(known or labels.max() + 1))


def count(partitions: list[tuple[np.ndarray, np.ndarray]], labels: np.ndarray, classes: int) -> np.ndarray:
    """Return how many examples [nodes, classes] of each label each node holds, train and test together."""
    return np.stack([np.bincount(labels[np.concatenate(both)], minlength=classes) for both in partitions])


def table(counts: np.ndarray, tests: list[int], title: str, many_labels: int = MANY_LABELS) -> Table:
    """Return the counts as a table, with each node's sum and the share of its most frequent label.

    ``tests`` says how many of a node's examples it keeps for testing; of more labels than ``many_labels``
    the table has the most frequent ones.
    """
    nodes, classes = counts.shape
    by_label = classes <= many_labels
    middle = [str(label) for label in range(classes)] if by_label else ["labels", "most frequent"]
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("node", *middle, "all", "test", "top"):
        out.add_column(heading, justify="right", no_wrap=True)
    half = MANY_NODES // 2
    for node, row in enumerate(counts):
        if nodes > MANY_NODES and node == half:
            out.add_row("...")
        if nodes <= MANY_NODES or not half <= node < nodes - half:
            cells = _cells(row) if by_label else _few_cells(row)
            share = row.max() / max(row.sum(), 1)
            out.add_row(str(node), *cells, str(row.sum()), str(tests[node]), f"{share:.0%}")
    out.add_section()
    total = counts.sum(0)
    cells = _cells(total) if by_label else _few_cells(total)
    out.add_row("all", *cells, str(total.sum()), str(sum(tests)), f"{total.max() / total.sum():.0%}")
    return out


def _cells(row: np.ndarray) -> list[str]:
    return [str(n) if n else "[dim]0[/dim]" for n in row]


def _few_cells(row: np.ndarray) -> list[str]:
    top = np.argsort(-row, kind="stable")[:4]
    return [str(np.count_nonzero(row)), ", ".join(f"{label}: {row[label]}" for label in top if row[label])]


def draw(counts: np.ndarray, target: Path, title: str) -> None:
    """Draw one bar per node, stacked by label."""
    nodes, classes = counts.shape
    width = min(16.0, max(5.0, 0.3 * nodes + 2))
    figure, axis = plt.subplots(figsize=(width, 4.2), layout="constrained")
    colours = plt.get_cmap("tab10" if classes <= 10 else "nipy_spectral")
    bottom = np.zeros(nodes)
    for label in range(classes):
        colour = colours(label if classes <= 10 else label / (classes - 1))
        thickness = 0.85 if nodes <= 100 else 1.0
        axis.bar(np.arange(nodes), counts[:, label], thickness, bottom, color=colour, label=str(label))
        bottom += counts[:, label]
    axis.set_xlabel("node")
    axis.set_ylabel("examples")
    axis.set_title(title, fontsize=10)
    axis.set_xlim(-0.7, nodes - 0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if classes <= 20:
        handles, names = axis.get_legend_handles_labels()
        figure.legend(handles[::-1], names[::-1], title="label", frameon=False, loc="outside right center")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=130)
    plt.close(figure)
