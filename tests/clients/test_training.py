"""The local loop against the loop that anyone would write in PyTorch, bit for bit."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from flwr.app import RecordDict
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool2d
from torch.optim import SGD, Adam, AdamW, Optimizer

from clients import (
    Classification,
    Examples,
    Exponential,
    GradientVariance,
    LeastSquares,
    LocalTraining,
    Proximal,
    StepDecay,
    Task,
)
from clients import gradient as gradient_module
from clients.evaluation import evaluate

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


def train(model: nn.Module, data: Examples, **settings: Any) -> dict[str, float]:
    training = LocalTraining(**{"optimizer": partial(SGD, lr=0.1), **settings})
    return training(model, data, Classification(), server_round=1, seed=SEED)


def assert_equal(first: nn.Module, second: nn.Module) -> None:
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


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


# ---- learning rate and state over rounds ---------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Exponential(), [1, 1, 1, 1, 1]),
        (Exponential(0.5), [1, 0.5, 0.25, 0.125, 0.0625]),
        (Exponential(0.5, ahead=1), [0.5, 0.25, 0.125, 0.0625, 0.03125]),
        (StepDecay(2, 0.1), [1, 1, 0.1, 0.1, 0.1**2]),
        (StepDecay(1, 0.5), [1, 0.5, 0.25, 0.125, 0.0625]),
    ],
)
def test_schedules_by_hand(schedule: Exponential | StepDecay, factors: list[float]) -> None:
    assert [schedule(t) for t in range(1, 6)] == pytest.approx(factors, rel=1e-12)


def test_the_learning_rate_follows_the_schedule() -> None:
    ours, plain, data = seeded(perceptron), seeded(perceptron), examples()
    training = LocalTraining(optimizer=partial(SGD, lr=0.4), schedule=Exponential(0.5), batch_size=16)
    metrics = training(ours, data, Classification(), server_round=3, seed=SEED)
    by_hand(plain, data, SGD(plain.parameters(), lr=0.1), epochs=1, batch_size=16)
    assert_equal(ours, plain)
    assert metrics["learning-rate"] == 0.1


@pytest.mark.parametrize("optimizer", [partial(SGD, lr=0.1, momentum=0.9), partial(Adam, lr=0.01)])
def test_a_kept_optimizer_goes_on_and_a_fresh_one_does_not(optimizer: Callable[..., Optimizer]) -> None:
    kept, fresh, plain, restarted = (seeded(perceptron) for _ in range(4))
    data, memory, going_on = examples(), RecordDict(), optimizer(plain.parameters())
    for server_round in (1, 2, 3):
        for model, keep in ((kept, True), (fresh, False)):
            training = LocalTraining(optimizer=optimizer, batch_size=16, keep_optimizer=keep)
            training(model, data, Classification(), server_round=server_round, seed=SEED, memory=memory)
        by_hand(plain, data, going_on, epochs=1, batch_size=16)
        by_hand(restarted, data, optimizer(restarted.parameters()), epochs=1, batch_size=16)
    assert_equal(kept, plain)
    assert_equal(fresh, restarted)
    assert not torch.equal(next(kept.parameters()), next(fresh.parameters()))


# ---- corrections ---------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [None, 0.5], ids=["", "clipped"])
def test_the_proximal_term_by_hand(clip: float | None) -> None:
    """Clipping comes after the term, as if it stood in the loss."""
    ours, plain, data = seeded(perceptron), seeded(perceptron), examples()
    training = LocalTraining(
        optimizer=partial(SGD, lr=0.1, momentum=0.9), local_epochs=2, batch_size=16, max_grad_norm=clip
    )
    term = Proximal(list(ours.parameters()), mu=0.7)
    training(ours, data, Classification(), server_round=1, seed=SEED, corrections=[term])
    optimizer = SGD(plain.parameters(), lr=0.1, momentum=0.9)
    by_hand(plain, data, optimizer, epochs=2, batch_size=16, clip=clip, mu=0.7)
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_the_proximal_term_is_the_gradient_of_the_squared_distance() -> None:
    start = torch.randn(4, dtype=torch.float64)
    w = nn.Parameter(start.clone())
    term = Proximal([w], mu=0.3)
    with torch.no_grad():
        w += torch.arange(4.0, dtype=torch.float64)
    loss_gradient = torch.randn(4, dtype=torch.float64)
    (expected,) = torch.autograd.grad(w @ loss_gradient + 0.3 / 2 * (w - start).square().sum(), w)
    w.grad = loss_gradient.clone()
    term([w])
    torch.testing.assert_close(w.grad, expected, rtol=1e-14, atol=1e-14)


def test_gradient_variance_is_what_torch_computes() -> None:
    w, observed = nn.Parameter(torch.zeros(3, 2)), GradientVariance()
    gradients = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(0))
    for g in gradients:
        w.grad = g.clone()
        observed([w])
    assert torch.equal(w.grad, gradients[-1])
    metrics: dict[str, float] = {}
    observed.finish([w], metrics)
    assert metrics["gradient-variance"] == pytest.approx(float(gradients.var(0).mean()), rel=1e-5)


def test_gradient_variance_of_one_step_is_zero() -> None:
    w, observed, metrics = nn.Parameter(torch.zeros(2)), GradientVariance(), dict[str, float]()
    w.grad = torch.ones(2)
    observed([w])
    observed.finish([w], metrics)
    assert metrics == {"gradient-variance": 0.0}


# ---- the traced step: the same bits, whatever the model ------------------------------------------


def convolutional() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 3, 2)
            self.out = nn.Linear(3, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(max_pool2d(self.conv(x.view(-1, 1, 2, 3)).relu(), (1, 2)).flatten(1))

    return Net()


def with_inplace_relu() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(inplace=True), nn.Linear(8, CLASSES))


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.4), nn.Linear(8, CLASSES))


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES))


def with_a_branch() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(FEATURES, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x) if x[0, 0] > 0 else -self.fc(x)

    return Net()


def with_a_spare_parameter() -> nn.Module:
    class Net(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(FEATURES, CLASSES))
            self.spare = nn.Parameter(torch.ones(4))

    return Net()


@pytest.mark.parametrize(
    ("make", "traced"),
    [
        (perceptron, True),
        (with_a_spare_parameter, True),
        (convolutional, True),
        (with_inplace_relu, False),
        (with_dropout, False),
        (with_batch_norm, False),
        (with_a_branch, False),
    ],
)
@pytest.mark.parametrize("batch_size", [16, None], ids=["batches", "full"])
def test_many_steps_equal_the_plain_loop(
    make: Make, traced: bool, batch_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient_module, "TRACE_AFTER", 3)
    gradient_module.gradient_of.cache_clear()
    ours, plain, data = seeded(make), seeded(make), examples()
    optimizer = partial(SGD, lr=0.05, momentum=0.5)
    train(ours, data, optimizer=optimizer, local_epochs=12, batch_size=batch_size)
    by_hand(plain, data, optimizer(plain.parameters()), epochs=12, batch_size=batch_size or SIZE)
    assert_equal(ours, plain)
    used = gradient_module.gradient_of(ours, Classification())
    assert used._steps
    assert all((step != used._eager) == traced for step in used._steps.values())


def test_a_parameter_may_be_frozen_and_set_free_between_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_module, "TRACE_AFTER", 3)
    gradient_module.gradient_of.cache_clear()
    ours, plain, data, optimizer = seeded(perceptron), seeded(perceptron), examples(), partial(SGD, lr=0.05)
    for free in (True, False, True):
        for model in (ours, plain):
            next(model.parameters()).requires_grad_(free)
        train(ours, data, optimizer=optimizer, local_epochs=2, batch_size=16)
        by_hand(
            plain,
            data,
            optimizer([p for p in plain.parameters() if p.requires_grad]),
            epochs=2,
            batch_size=16,
        )
    assert_equal(ours, plain)


def test_a_traced_step_follows_the_parameters() -> None:
    """The parameters that were there when it was traced are not part of it."""
    gradient = gradient_module.Gradient(seeded(perceptron), Classification())
    x, y = torch.randn(9, FEATURES), torch.randint(CLASSES, (9,))
    parameters = [p.detach() for p in gradient.model.parameters()]
    traced = gradient._trace(parameters, x, y)
    with torch.no_grad():
        for p in gradient.model.parameters():
            p.mul_(-2)
    with torch.no_grad():
        own = list(gradient.model.parameters())
        expected, sums = gradient._eager(own, x, y)
        found, traced_sums = traced(own, x, y)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert all(torch.equal(traced_sums[name], sums[name]) for name in sums)
    assert float(sums["loss"]) > 0


def test_least_squares_by_hand() -> None:
    """F = 0.5 ||A w - b||^2 at w = 0: gradient -A'b; the loss is scaled to rows per node."""
    a = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    b = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    w = torch.zeros(2, 1, dtype=torch.float64, requires_grad=True)
    loss, sums = LeastSquares(rows_per_node=2)(a @ w, b)
    (gradient,) = torch.autograd.grad(loss, w)
    assert loss.item() == 1.0
    torch.testing.assert_close(gradient, -a.T @ b)
    assert float(sums["loss"]) / 2 == 2.0


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


@pytest.mark.parametrize("task", [Classification(), LeastSquares(3)], ids=["classes", "squares"])
def test_rows_that_only_fill_up_do_not_count(task: Task) -> None:
    random = torch.Generator().manual_seed(2)
    outputs = torch.randn(5, CLASSES, generator=random)
    targets = torch.randint(CLASSES, (5,), generator=random)
    if isinstance(task, LeastSquares):
        targets = torch.randn(5, CLASSES, generator=random)
    loss, sums = task(outputs[:3], targets[:3])
    filled, filled_sums = task(outputs, targets, torch.tensor([1.0, 1, 1, 0, 0]))
    torch.testing.assert_close(filled, loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(filled_sums, sums, rtol=1e-6, atol=0)
