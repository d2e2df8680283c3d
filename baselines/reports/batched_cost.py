"""Batched nodes: do they take less time than one after another, for a model and its batches?

A round of a few nodes and steps is taken in both ways in turn, on noise; the fastest of each counts.
"""

import time
from dataclasses import replace

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from torch import Tensor, nn

from baselines.grids.inline import InlineGrid
from clients import Examples, LocalTraining, Node, Task, client_app
from clients.batched.together import Together
from strategies.shared import protocol

NODES = 10  # at most
STEPS = 20  # of each node in a turn, unless client.local_steps says fewer
BATCHES = 4  # of each node
TURNS = 3  # of each way; the first one records the steps
LONGEST = 10.0  # seconds that all turns may take
TIE = 1.05


def line(
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    task: Task,
    training: LocalTraining,
    nodes: int,
    step: float,
) -> str:
    """Say which way takes less time; ``nodes`` are in a round, ``step`` are the seconds of one."""
    if nodes < 2:
        return "batched nodes: there is one node in a round"
    nodes, steps = min(nodes, NODES), min(training.local_steps or STEPS, STEPS)
    if 2 * TURNS * nodes * steps * step > LONGEST:
        return "batched nodes: not measured; steps as long as these gain next to nothing"
    found = seconds_of(model, batch, task, training.lasting(steps=steps), nodes)
    if isinstance(found, str):
        return f"batched nodes: {found}; they train one by one"
    alone, batched = found
    times = f"{batched * 1e3:.3g} ms a step, one by one {alone * 1e3:.3g} ms"
    way, gain = ("true", alone / batched) if batched < alone else ("false", batched / alone)
    faster = f"runtime.batch_clients={way} is {gain:.2g} times as fast" if gain > TIE else "about the same"
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
        told = ConfigRecord({protocol.SERVER_ROUND: 1})
        content = RecordDict({protocol.ARRAYS: arrays, protocol.CONFIG: told})
        messages = [Message(content, k, MessageType.TRAIN) for k in grid.get_node_ids()]
        started = time.perf_counter()
        grid.send_and_receive(messages)
        if inputs.device.type != "cpu":
            torch.accelerator.synchronize(inputs.device)
        return (time.perf_counter() - started) / steps

    grids = [InlineGrid(client_app(of_node), nodes, together) for together in (None, Together(of_node))]
    taken = [[turn(grid) for grid in grids] for _ in range(TURNS)]
    if grids[1].answering.together is None:
        return "nodes cannot be batched"
    alone, batched = (min(seconds[1:]) for seconds in zip(*taken, strict=True))
    return alone, batched
