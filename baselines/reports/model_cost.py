"""The cost of a model: parameters, multiply-accumulates, memory and time of one training step.

Multiply-accumulates (MACs) are half of the flops that torch counts in convolutions and matrix products for
one example; biases, activations, pooling and normalisation do not count. (Torch's counter treats the
backward pass of a strided convolution as that of a dense one, and ignores recurrent layers.)
"""

import csv
import dataclasses
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from rich import box
from rich.table import Table
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from baselines.grids.inline import InlineGrid
from clients import Examples, LocalTraining, Node, Task, client_app
from clients.batched.together import BatchedTrainer
from clients.examples import Inputs
from strategies.shared import protocol

NUM_COST_EXAMPLES = 2  # examples for counting MACs: batch normalisation needs more than one
SECONDS = 1.0  # for which steps are measured, roughly


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """A module with its own parameters; MACs are per example."""

    name: str
    kind: str
    output: tuple[int, ...]
    parameters: int
    forward: int
    backward: int


def layers(model: nn.Module, inputs: Tensor, targets: Tensor, task: Task) -> list[LayerCost]:
    """Return the layers in order of execution; ``inputs`` and ``targets`` hold two examples."""
    outputs: dict[str, tuple[int, ...]] = {}

    def note(name: str, _: nn.Module, __: object, output: Tensor | tuple[Tensor, object]) -> None:
        out = output[0] if isinstance(output, tuple) else output  # a recurrent layer also returns its state
        outputs[name] = tuple(out.shape[1:])

    handles = [
        module.register_forward_hook(partial(note, name))
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    ]
    model.train()
    with _count_operations() as forward:
        loss, _ = task(model(inputs), targets)
    with _count_operations() as both:
        loss, _ = task(model(inputs), targets)
        torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
    for handle in handles:
        handle.remove()
    root = type(model).__name__
    rows = []
    for name, output in outputs.items():
        module = model.get_submodule(name)
        key = f"{root}.{name}" if name else root
        ahead, all_ = (
            sum(counter.get(key, {}).values()) // 2 // NUM_COST_EXAMPLES for counter in (forward, both)
        )
        count = sum(p.numel() for p in module.parameters(recurse=False))
        rows.append(LayerCost(name or root, type(module).__name__, output, count, ahead, all_ - ahead))
    return rows


def step_memory(
    model: nn.Module, inputs: Tensor, targets: Tensor, task: Task, training: LocalTraining
) -> dict[str, int]:
    """Return the bytes that one training step on a batch holds, by purpose."""
    parameters = list(model.parameters())
    known = {tensor.untyped_storage().data_ptr() for tensor in [*parameters, *model.buffers(), inputs]}
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss, _ = task(model(inputs), targets)
    activations = sum(saved.values())
    optimizer = training.optimizer([p for p in parameters if p.requires_grad])
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    state = [t for values in optimizer.state.values() for t in values.values() if isinstance(t, Tensor)]
    gradients = [p.grad for p in parameters if p.grad is not None]
    return {
        "parameters": _bytes([*parameters, *model.buffers()]),
        "gradients": _bytes(gradients),
        "optimizer": _bytes(state),
        "activations": activations,
        "batch": _bytes([inputs, targets]),
    }


@dataclasses.dataclass(frozen=True)
class Seconds:
    """A duration: real time, and processor time of the program and of the kernel."""

    real: float
    user: float
    system: float

    @classmethod
    def so_far(cls) -> "Seconds":
        """Return the current times of this process with all its threads; only differences mean anything."""
        spent = os.times()
        return cls(time.perf_counter(), spent.user, spent.system)

    def since(self, started: "Seconds", steps: int) -> "Seconds":
        """Return the mean duration of ``steps`` steps since ``started``."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(started), strict=True)
        return Seconds(*((now - then) / steps for now, then in pairs))


def step_seconds(
    model: nn.Module, inputs: Inputs, targets: Tensor, task: Task, training: LocalTraining
) -> Seconds:
    """Return the seconds of one step of local training on a batch, after steps to warm up."""
    examples = Examples(inputs, targets, torch.arange(len(targets)))

    def run(steps: int) -> Seconds:
        timed = dataclasses.replace(
            training, local_epochs=None, local_steps=steps, batch_size=len(targets), personal=None
        )
        started = Seconds.so_far()
        timed(model, examples, task, server_round=1, seed=0)
        if targets.device.type != "cpu":
            torch.accelerator.synchronize(targets.device)
        return Seconds.so_far().since(started, steps)

    run(1)
    steps = max(3, min(300, int(SECONDS / run(2).real)))
    run(steps)
    return run(steps)


@contextmanager
def _count_operations() -> Iterator[dict[str, dict[object, int]]]:
    """Count flops by module; the counts are available after the context."""
    counts: dict[str, dict[object, int]] = {}
    with FlopCounterMode(display=False) as counter:
        yield counts
    flops = counter.get_flop_counts()
    counts.update({name: dict(by_operation) for name, by_operation in flops.items()})


def _bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


# Batched nodes: are they faster than one by one, for a model and its batches?
#
# A round of a few nodes and steps is run alternately in both ways, on noise; the fastest of each counts.


NODES = 10  # at most
STEPS = 20  # of each node in a turn, unless client.local_steps says fewer
BATCHES = 4  # of each node
NUM_TURNS = 3  # of each way; the first one records the steps, and does not count
MAX_SECONDS = 10.0  # seconds that all turns may take
TIE_RATIO = 1.05


def batched_cost_line(
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    task: Task,
    training: LocalTraining,
    nodes: int,
    step: float,
) -> str:
    """Say which way is faster; ``nodes`` train in a round, and a single step takes ``step`` seconds."""
    if nodes < 2:
        return "batched nodes: there is one node in a round"
    nodes, steps = min(nodes, NODES), min(training.local_steps or STEPS, STEPS)
    if 2 * NUM_TURNS * nodes * steps * step > MAX_SECONDS:
        return "batched nodes: not measured; steps as long as these gain next to nothing"
    seconds = seconds_of(model, batch, task, training.with_duration(steps=steps), nodes)
    if isinstance(seconds, str):
        return f"batched nodes: {seconds}; they train one by one"
    alone, batched = seconds
    times = f"{batched * 1e3:.3g} ms a step, one by one {alone * 1e3:.3g} ms"
    way, gain = ("true", alone / batched) if batched < alone else ("false", batched / alone)
    faster = (
        f"runtime.batch_clients={way} is {gain:.2g} times as fast" if gain > TIE_RATIO else "about the same"
    )
    return f"batched nodes ({nodes} with {steps} steps a round): {times}: {faster}"


def seconds_of(
    model: nn.Module, batch: tuple[Tensor, Tensor], task: Task, training: LocalTraining, nodes: int
) -> tuple[float, float] | str:
    """Return the seconds of a node's step, one by one and batched; or why they cannot be compared."""
    inputs, targets = (torch.cat([part] * BATCHES) for part in batch)
    examples = Examples(inputs, targets, torch.arange(len(inputs)))
    none = replace(examples, index=examples.index[:0])
    node = Node(model, replace(training, batch_size=len(batch[0])), task, examples, none)
    arrays, steps = ArrayRecord(model.state_dict()), nodes * training.steps(len(examples))

    def of_node(message: Message, context: Context) -> Node:
        return node

    def turn(grid: InlineGrid) -> float:
        config = ConfigRecord({protocol.SERVER_ROUND: 1})
        content = RecordDict({protocol.ARRAYS: arrays, protocol.CONFIG: config})
        messages = [Message(content, k, MessageType.TRAIN) for k in grid.get_node_ids()]
        started = time.perf_counter()
        grid.send_and_receive(messages)
        if inputs.device.type != "cpu":
            torch.accelerator.synchronize(inputs.device)
        return (time.perf_counter() - started) / steps

    grids = [
        InlineGrid(client_app(of_node), nodes, batched_trainer)
        for batched_trainer in (None, BatchedTrainer(of_node))
    ]
    taken = [[turn(grid) for grid in grids] for _ in range(NUM_TURNS)]
    if grids[1].answering.batched_trainer is None:
        return "nodes cannot be batched"
    alone, batched = (min(seconds[1:]) for seconds in zip(*taken, strict=True))
    return alone, batched


# A model's layers as a table, beside the figures that a paper prints.


PRINTED = Path(__file__).parents[1] / "papers" / "selective" / "tables"
LAYERS, TIMES = "tables4_1_4_3_4_5.csv", "tables4_2_4_4.csv"
ROUND = 13_333  # examples of a node in the thesis ("13333 images", chapter 4)


def layer_table(layers: list[LayerCost], title: str) -> Table:
    """Return layers, parameters and multiply-accumulates per example."""
    out = _empty(title, ["layer", "kind", "output"], ["parameters", "MACs forward", "MACs backward"])
    for layer in layers:
        numbers = (layer.parameters, layer.forward, layer.backward)
        out.add_row(layer.name, layer.kind, "x".join(map(str, layer.output)), *map(_group_digits, numbers))
    out.add_section()
    sums = (
        sum(layer.parameters for layer in layers),
        sum(layer.forward for layer in layers),
        sum(layer.backward for layer in layers),
    )
    out.add_row("all", "", "", *map(_group_digits, sums))
    return out


def printed_layers(name: str, model: str) -> list[dict[str, str]]:
    """Return the rows that Liu (2019, chapter 4) prints for a model, by its name in ``conf/model``."""
    if not (PRINTED / name).exists():  # an app bundle lacks the papers' tables
        return []
    with open(PRINTED / name) as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == model]
    return [row for row in rows if row.get("layer") != "Input"]


def beside_printed(layers: list[LayerCost], rows: list[dict[str, str]]) -> Table:
    """Put the thesis' rows beside our layers that have MACs, in order."""
    title = f"printed in table {rows[0]['table']} of Liu (2019), and ours"
    out = _empty(title, [], ["printed", "parameters", "ours", "MACs", "ours (forward)", "our layer"])
    weighted = [layer for layer in layers if layer.forward]
    for number, row in enumerate(rows):
        own = ("-", "-", "-")
        if number < len(weighted):
            layer = weighted[number]
            own = (_group_digits(layer.parameters), _group_digits(layer.forward), layer.name)
        parameters, macs = (_group_digits(int(row[key])) for key in ("parameters", "macs"))
        out.add_row(row["layer"], parameters, own[0], macs, own[1], own[2])
    out.add_section()
    parameters, macs = (_group_digits(sum(int(row[key]) for row in rows)) for key in ("parameters", "macs"))
    ours = (sum(layer.parameters for layer in layers), sum(layer.forward for layer in layers))
    out.add_row("all", parameters, _group_digits(ours[0]), macs, _group_digits(ours[1]), "")
    return out


def times_beside(step: Seconds, size: int, rows: list[dict[str, str]]) -> Table:
    """Put a round's seconds on a Raspberry Pi 4 beside ours, extrapolated from a step of ``size`` examples.

    Ours count only the steps, without evaluation and messages.
    """
    title = f"table {rows[0]['table']} of Liu (2019), {ROUND:,} examples"
    out = _empty(title, ["seconds"], ["printed (Raspberry Pi 4)", "ours (here)"])
    for row in rows:
        out.add_row(row["type"], row["seconds"], f"{getattr(step, row['type']) * ROUND / size:.3g}")
    return out


def _empty(title: str, words: list[str], numbers: list[str]) -> Table:
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in words:
        out.add_column(heading, no_wrap=True)
    for heading in numbers:
        out.add_column(heading, justify="right", no_wrap=True)
    return out


def _group_digits(number: int) -> str:
    return f"{number:,}"
