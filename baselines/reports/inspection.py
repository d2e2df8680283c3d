"""Tables and figures of baselines.inspect: labels by node, costs of a model."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from clients import Classification, LeastSquares, NextToken, Task

from . import curves, model_cost
from .model_cost import (
    LAYERS,
    TIMES,
    batched_cost_line,
    beside_printed,
    layer_table,
    printed_layers,
    times_beside,
)
from .tables import width_of

# A partition as a table of counts, nodes by labels, and as bars.


mpl.use("Agg")

MANY_NODES = 40  # with more nodes, the table shows the first and the last
MANY_LABELS = 12  # with more labels, they have no columns


def count_labels(experiment: Experiment) -> np.ndarray | None:
    """Return how many examples [nodes, labels] each node of an experiment holds; None without labels.

    Labels are those that partitioners use: classes, or the data set's own ``labels``.
    """
    labels = experiment.dataset.labels_of("train")
    if experiment.dataset.site is not None or labels is None or labels.dtype.kind != "i":
        return None
    known = experiment.num_classes if isinstance(experiment.dataset.task, Classification) else None
    return count(experiment.partitions, labels, int(known or labels.max() + 1))


def count(partitions: list[tuple[np.ndarray, np.ndarray]], labels: np.ndarray, classes: int) -> np.ndarray:
    """Return how many examples [nodes, classes] of each label each node holds, train and test together."""
    return np.stack([np.bincount(labels[np.concatenate(both)], minlength=classes) for both in partitions])


def count_table(counts: np.ndarray, tests: list[int], title: str, many_labels: int = MANY_LABELS) -> Table:
    """Return the counts as a table, with each node's sum and the share of its most frequent label.

    ``tests`` is how many examples each node keeps for testing; with more than ``many_labels`` labels, the
    table names the most frequent ones.
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


def show(overrides: Sequence[str], figure: Path) -> None:
    """Print and draw the partition or the model, whichever the overrides name; both if neither."""
    keys = {override.partition("=")[0].partition(".")[0] for override in overrides}
    groups = keys & {"partitioner", "model"} or {"partitioner", "model"}
    models = [override.partition("=")[2] for override in overrides if override.startswith("model=")]
    experiment = Experiment(shlex.join(overrides))
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    if "partitioner" in groups:
        curves.check_name(figure)
        show_partition(experiment, figure, console)
    if "model" in groups:
        show_model(experiment, models[-1] if models else "", console)


def show_partition(experiment: Experiment, target: Path, console: Console) -> None:
    """Print and draw how many examples of each label each node holds."""
    counts, judged_labels = count_labels(experiment), experiment.dataset.labels_of("test")
    if counts is None or judged_labels is None:
        raise UserError("the data set has no labels to count: choose a data set for classification")
    name = type(experiment.partitioner).__name__
    title = f"{name}, {len(counts)} nodes, seed {experiment.settings.seed}: examples by label"
    tests = [len(test) for _, test in experiment.partitions]
    table = count_table(counts, tests, title)
    if width_of(table, console) > console.width:
        table = count_table(counts, tests, title, many_labels=0)
    _print_whole(console, table)
    sizes = counts.sum(1)
    console.print(f"examples per node: {sizes.min()} to {sizes.max()}, mean {sizes.mean():.1f}")
    judged = experiment.test_examples.index
    if len(judged) < len(judged_labels):
        by_label = np.bincount(judged_labels[judged], minlength=counts.shape[1]).tolist()
        console.print(f"models are evaluated on {len(judged)} test examples: {by_label}")
    draw(counts, target, title)
    console.print(f"figure: {target}")


def show_model(experiment: Experiment, name: str, console: Console) -> None:
    """Print a model's layers and the cost of a training step, beside the numbers in a paper, if any."""
    model, training, classes = experiment.model(), experiment.training, _classes(experiment)
    shape = experiment.input_shape
    if not isinstance(shape, list):
        raise UserError(
            f"the model takes several tensors, {shape}, and only models with one input are shown"
        )
    size = training.batch_size or 32
    torch.set_num_threads(experiment.settings.threads)
    try:
        inputs, targets, task = _batch(model, max(size, model_cost.NUM_COST_EXAMPLES), shape, classes)
        layers = model_cost.layers(
            model, inputs[: model_cost.NUM_COST_EXAMPLES], targets[: model_cost.NUM_COST_EXAMPLES], task
        )
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise UserError(
            f"the model does not take inputs of shape {tuple(shape)} ({error}): "
            "choose another model or dataset"
        ) from error
    title = f"{type(model).__name__} on inputs of shape {tuple(shape)}, per example"
    _print_whole(console, layer_table(layers, title))
    batch = inputs[:size], targets[:size]
    memory = model_cost.step_memory(experiment.model(), *batch, task, training)
    seconds = model_cost.step_seconds(model, *batch, task, training)
    held = ", ".join(f"{part} {amount / 1e6:.3g}" for part, amount in memory.items())
    console.print(
        f"a training step of {size} examples on {experiment.device}, {experiment.settings.threads} threads:"
    )
    console.print(f"  memory {sum(memory.values()) / 1e6:.3g} MB ({held})")
    real = seconds.real
    console.print(f"  time {real * 1e3:.3g} ms, {size / real:,.0f} examples a second")
    batched = batched_cost_line(
        experiment.model(), batch, task, training, experiment.settings.nodes_in_round, real
    )
    console.print(f"  {batched}", soft_wrap=True)
    if rows := printed_layers(LAYERS, name):
        console.print(beside_printed(layers, rows))
    if rows := printed_layers(TIMES, name):
        console.print(times_beside(seconds, size, rows))


def _batch(model: nn.Module, size: int, shape: list[int], classes: int) -> tuple[Tensor, Tensor, Task]:
    """Return a batch of noise and a task for a model; a model with an embedding gets tokens."""
    first = next(model.parameters())
    if any(isinstance(module, nn.Embedding) for module in model.modules()):
        tokens = torch.randint(classes, (size, *shape), device=first.device)
        with torch.no_grad():
            has_one_output = (
                model(tokens[: model_cost.NUM_COST_EXAMPLES]).ndim == 2
            )  # per text, not per token
        return (tokens, tokens[:, 0], Classification()) if has_one_output else (tokens, tokens, NextToken())
    inputs = torch.randn(size, *shape, dtype=first.dtype, device=first.device)
    targets = torch.arange(size, device=first.device) % classes
    if classes == 1:
        return inputs, targets[:, None].to(first.dtype), LeastSquares()
    return inputs, targets, Classification()


def _print_whole(console: Console, table: Table) -> None:
    """Print a table at full width: a narrow terminal breaks its lines, but no digit is lost."""
    console.width = max(console.width, width_of(table, console))
    console.print(table)


def _classes(experiment: Experiment) -> int:
    if experiment.num_classes is None:
        raise UserError("how many classes there are is not known: set dataset.num_classes")
    return int(experiment.num_classes)
