"""What a model costs: parameters, multiply-accumulates, memory and time of one training step.

Multiply-accumulates (MACs) are half of what torch's flop counter finds in convolutions and matrix products
for one example; additions of biases, activations, pooling and normalisation are not counted. (The counter
takes the backward pass of a strided convolution for that of a dense one, and knows no recurrent layer.)
"""

import dataclasses
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from clients import Examples, LocalTraining, Task
from clients.inputs import Inputs

PAIR = 2  # examples that MACs are counted on: batch normalisation wants more than one
SECONDS = 1.0  # about how long a step is measured


@dataclasses.dataclass(frozen=True)
class Layer:
    """A module with parameters of its own; MACs are those of one example."""

    name: str
    kind: str
    output: tuple[int, ...]
    parameters: int
    forward: int
    backward: int


def layers(model: nn.Module, inputs: Tensor, targets: Tensor, task: Task) -> list[Layer]:
    """Return the layers in the order in which they run; ``inputs`` and ``targets`` hold two examples."""
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
    with _counted() as forward:
        loss, _ = task(model(inputs), targets)
    with _counted() as both:
        loss, _ = task(model(inputs), targets)
        torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
    for handle in handles:
        handle.remove()
    root = type(model).__name__
    found = []
    for name, output in outputs.items():
        module = model.get_submodule(name)
        key = f"{root}.{name}" if name else root
        ahead, all_ = (sum(counter.get(key, {}).values()) // 2 // PAIR for counter in (forward, both))
        count = sum(p.numel() for p in module.parameters(recurse=False))
        found.append(Layer(name or root, type(module).__name__, output, count, ahead, all_ - ahead))
    return found


def step_memory(
    model: nn.Module, inputs: Tensor, targets: Tensor, task: Task, training: LocalTraining
) -> dict[str, int]:
    """Return the bytes that one training step on a batch holds, by what they are for."""
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
    kept = sum(saved.values())
    optimizer = training.optimizer([p for p in parameters if p.requires_grad])
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    state = [t for values in optimizer.state.values() for t in values.values() if isinstance(t, Tensor)]
    gradients = [p.grad for p in parameters if p.grad is not None]
    return {
        "parameters": _bytes([*parameters, *model.buffers()]),
        "gradients": _bytes(gradients),
        "optimizer": _bytes(state),
        "activations": kept,
        "batch": _bytes([inputs, targets]),
    }


@dataclasses.dataclass(frozen=True)
class Seconds:
    """How long something takes: by the clock, and in processors' time for the program and the kernel."""

    real: float
    user: float
    system: float

    @classmethod
    def so_far(cls) -> "Seconds":
        """Return those of this process, with all its threads, from some moment on."""
        spent = os.times()
        return cls(time.perf_counter(), spent.user, spent.system)

    def since(self, started: "Seconds", steps: int) -> "Seconds":
        """Return those of one of ``steps`` steps since then."""
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
def _counted() -> Iterator[dict[str, dict[object, int]]]:
    """Count flops by module; the counts are there when the context ends."""
    counts: dict[str, dict[object, int]] = {}
    with FlopCounterMode(display=False) as counter:
        yield counts
    found = counter.get_flop_counts()
    counts.update({name: dict(by_operation) for name, by_operation in found.items()})


def _bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
