"""The local loop against the loop that anyone would write in PyTorch, bit for bit."""

import ast
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from clients import Classification, Examples, LocalTraining, LocalUpdate
from clients.evaluation import evaluate
from helpers.checkout import ROOT
from helpers.plain_loop import (
    CLASSES,
    SEED,
    SIZE,
    assert_equal,
    by_hand,
    examples,
    perceptron,
    seeded,
    train,
)


@pytest.mark.parametrize(
    "optimizer",
    [
        partial(SGD, lr=0.1),
        partial(SGD, lr=0.1, momentum=0.9, weight_decay=1e-2),
        partial(SGD, lr=0.1, momentum=0.9, nesterov=True),
        partial(Adam, lr=0.01, weight_decay=1e-3),
        partial(AdamW, lr=0.01),
    ],
    ids=["sgd", "momentum-decay", "nesterov", "adam", "adamw"],
)
@pytest.mark.parametrize("clip", [None, 0.5], ids=["", "clipped"])
def test_equals_the_plain_loop(optimizer: Callable[..., Optimizer], clip: float | None) -> None:
    ours, plain, data = seeded(perceptron), seeded(perceptron), examples()
    train(ours, data, optimizer=optimizer, local_epochs=3, batch_size=16, max_grad_norm=clip)
    by_hand(plain, data, optimizer(plain.parameters()), epochs=3, batch_size=16, clip=clip)
    assert_equal(ours, plain)
    assert not torch.equal(next(ours.parameters()), next(seeded(perceptron).parameters()))


def test_steps_go_on_over_epochs_that_are_reshuffled() -> None:
    ours, plain, data = seeded(perceptron), seeded(perceptron), examples()
    metrics = train(ours, data, local_epochs=None, local_steps=7, batch_size=16)  # an epoch is 4 steps
    by_hand(plain, data, SGD(plain.parameters(), lr=0.1), steps=7, batch_size=16)
    assert_equal(ours, plain)
    assert metrics["local-steps"] == 7


@pytest.mark.parametrize("batch_size", [None, SIZE, 10 * SIZE])
def test_a_full_batch_is_taken_in_order(batch_size: int | None) -> None:
    ours, plain, data = seeded(perceptron), seeded(perceptron), examples()
    metrics = train(ours, data, local_epochs=2, batch_size=batch_size)
    by_hand(plain, data, SGD(plain.parameters(), lr=0.1), epochs=2)
    assert_equal(ours, plain)
    assert metrics["local-steps"] == 2


def test_every_epoch_takes_each_example_once_in_another_order() -> None:
    seen: list[list[float]] = []

    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(CLASSES))

        def forward(self, x: Tensor) -> Tensor:
            seen.append(x[:, 0].tolist())
            return self.scale * x[:, :CLASSES]

    data = examples()
    train(Spy(), data, local_epochs=2, batch_size=16)
    assert [len(batch) for batch in seen] == [16, 16, 16, 2] * 2
    first, second = ([x for batch in epoch for x in batch] for epoch in (seen[:4], seen[4:]))
    assert sorted(first) == sorted(second) == sorted(data.inputs[data.index][:, 0].tolist())
    assert first != second


def test_metrics_count_each_example_once() -> None:
    ours, plain, data = seeded(perceptron), seeded(perceptron), examples()
    metrics = train(ours, data, local_epochs=2, batch_size=16)
    log = by_hand(plain, data, SGD(plain.parameters(), lr=0.1), epochs=2, batch_size=16)
    seen = sum(step["size"] for step in log)
    assert seen == 2 * SIZE
    assert metrics["loss"] == pytest.approx(sum(s["loss"] * s["size"] for s in log) / seen, rel=1e-6)
    assert metrics["accuracy"] == sum(s["hits"] for s in log) / seen
    assert metrics["local-steps"] == len(log) == 8


def test_the_seed_decides_the_order_and_nothing_else_does() -> None:
    data = examples()
    models = [seeded(perceptron) for _ in range(3)]
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), batch_size=16)
    for model, seed in zip(models, (1, 1, 2), strict=True):
        torch.rand(7)  # someone else draws
        training(model, data, Classification(), server_round=1, seed=seed)
    assert_equal(models[0], models[1])
    assert not torch.equal(next(models[0].parameters()), next(models[2].parameters()))


def test_frozen_parameters_stay() -> None:
    ours, plain, data = seeded(perceptron), seeded(perceptron), examples()
    for model in (ours, plain):
        model[0].requires_grad_(False)  # type: ignore[index]
    train(ours, data, batch_size=16)
    by_hand(plain, data, SGD(plain[2].parameters(), lr=0.1), epochs=1, batch_size=16)  # type: ignore[index]
    assert_equal(ours, plain)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"local_epochs": None}, "local_epochs=None and client.local_steps=None"),
        ({"local_steps": 2}, "local_epochs=1 and client.local_steps=2"),
        ({"local_epochs": 0}, "client.local_epochs=0"),
        ({"local_epochs": None, "local_steps": 1.5}, "client.local_steps=1.5"),
        ({"batch_size": 0}, "client.batch_size=0"),
        ({"max_grad_norm": 0.0}, "client.max_grad_norm=0"),
        ({"optimizer": partial(SGD, lr=-1)}, "client.optimizer.*[Ii]nvalid learning rate: -1"),
        ({"optimizer": partial(SGD, lr="high")}, "client.optimizer"),
    ],
)
def test_values_out_of_range_are_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        LocalTraining(**{"optimizer": partial(SGD, lr=0.1), **settings})
    assert "\n" not in str(caught.value)


def test_training_augments_every_batch_by_the_nodes_seed_and_tests_do_not() -> None:
    changed: list[Tensor] = []

    def noisy(inputs: Tensor, draws: torch.Generator) -> Tensor:
        changed.append(inputs + torch.randn(inputs.shape, generator=draws))
        return changed[-1]

    plain = examples()
    data = Examples(plain.inputs, plain.targets, plain.index, augment=noisy)

    def trained(data: Examples, seed: int, batch_size: int | None) -> dict[str, Tensor]:
        model = seeded(perceptron)
        training = LocalTraining(optimizer=partial(SGD, lr=0.1), local_epochs=2, batch_size=batch_size)
        training(model, data, Classification(), server_round=1, seed=seed)
        return {name: p.detach().clone() for name, p in model.named_parameters()}

    for batch_size, batches in ((20, 6), (None, 2)):
        changed.clear()
        once = trained(data, SEED, batch_size)
        assert len(changed) == batches
        assert not torch.equal(changed[0][:10], changed[1][:10])  # drawn anew
        torch.testing.assert_close(trained(data, SEED, batch_size), once, rtol=0, atol=0)
        for other in (trained(data, SEED + 1, batch_size), trained(plain, SEED, batch_size)):
            assert not torch.equal(other["0.weight"], once["0.weight"])
    changed.clear()
    evaluate(seeded(perceptron), data, Classification())
    assert not changed


def test_the_learning_rate_is_the_optimisers_own() -> None:
    assert LocalTraining(optimizer=partial(SGD, lr=0.3)).lr == 0.3
    assert LocalTraining(optimizer=Adam).lr == 0.001  # torch's


@pytest.mark.parametrize("work", [{"local_epochs": 2}, {"local_epochs": None, "local_steps": 3}], ids=str)
@pytest.mark.parametrize("batch_size", [None, 16])
def test_a_node_without_examples_takes_no_step(work: dict[str, Any], batch_size: int | None) -> None:
    model, none = seeded(perceptron), examples()
    metrics = train(
        model, Examples(none.inputs, none.targets, none.index[:0]), batch_size=batch_size, **work
    )
    assert_equal(model, seeded(perceptron))
    assert metrics == {"local-steps": 0, "learning-rate": 0.1}


def test_what_local_training_takes_is_spelled_out_for_its_caller_and_in_one_object() -> None:
    taken = {"model", "examples", "task", "server_round", "seed", "corrections", "memory"}
    spelled = [
        node.name
        for path in (ROOT / "clients").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and taken <= {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
    ]
    assert spelled == ["__call__"]
    assert taken <= {field.name for field in fields(LocalUpdate)}
