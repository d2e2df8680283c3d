"""The local loop that anyone would write in PyTorch, and ours beside it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from flwr.app import RecordDict
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer

from clients import Classification, Correction, Examples, LocalTraining, RoundStart

SIZE, FEATURES, CLASSES, SEED = 50, 6, 3, 11
Make = Callable[[], nn.Module]


def examples(size: int = SIZE) -> Examples:
    """Return every other row of a data set, from the end."""
    random = torch.Generator().manual_seed(5)
    inputs = torch.randn(2 * size, FEATURES, generator=random)
    targets = torch.randint(CLASSES, (2 * size,), generator=random)
    return Examples(inputs, targets, torch.arange(2 * size - 1, 0, -2))


def seeded(make: Make) -> nn.Module:
    torch.manual_seed(3)
    return make()


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))


def by_hand(
    model: nn.Module,
    data: Examples,
    optimizer: Optimizer,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int = SIZE,
    clip: float | None = None,
    mu: float = 0.0,
    seed: int = SEED,
) -> list[dict[str, float]]:
    """Train in place; return each step's loss, hits and batch size."""
    inputs, targets = data.inputs[data.index], data.targets[data.index]
    order = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model.train()
    start = [p.detach().clone() for p in model.parameters()]
    log: list[dict[str, float]] = []
    while True:
        full = batch_size >= len(targets)
        rows = torch.arange(len(targets)) if full else torch.randperm(len(targets), generator=order)
        for batch in rows.split(batch_size):
            optimizer.zero_grad()
            outputs = model(inputs[batch])
            loss = cross_entropy(outputs, targets[batch])
            loss.backward()
            if mu:
                for p, p0 in zip(model.parameters(), start, strict=True):
                    assert p.grad is not None
                    p.grad += mu * (p.detach() - p0)
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            hits = float((outputs.argmax(1) == targets[batch]).sum())
            log.append({"loss": loss.item(), "hits": hits, "size": len(batch)})
            if steps is not None and len(log) == steps:
                return log
        if epochs is not None and len(log) == epochs * -(-len(targets) // batch_size):
            return log


def train(
    model: nn.Module, data: Examples, corrections: Sequence[Correction] = (), **settings: Any
) -> dict[str, float]:
    training = LocalTraining(**{"optimizer": partial(SGD, lr=0.1), **settings})
    return training(model, data, Classification(), server_round=1, seed=SEED, corrections=corrections)


def assert_equal(first: nn.Module, second: nn.Module) -> None:
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def start_of(model: nn.Module) -> RoundStart:
    task, data = Classification(), examples()
    return RoundStart(model, data, task, partial(SGD, lr=0.1), 1, None, RecordDict(), RecordDict(), 0)
