"""A step is recorded where it can be repeated, and as long as nobody changes what it reads."""

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from clients import Classification, Correction, LocalTraining
from clients.fast import gradient as gradient_module
from clients.fast.gradient import RECORDED, get_gradient
from clients.fast.guards import ModelSnapshot
from helpers.plain_loop import CLASSES, FEATURES, SEED, assert_equal, by_hand, examples, perceptron, seeded

STEPS = 12


@pytest.fixture(autouse=True)
def recorded_soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gradient_module, "EAGER_STEPS_BEFORE_TRACE", 3)
    get_gradient.cache_clear()
    yield
    get_gradient.cache_clear()


class Scaled(nn.Module):
    """A linear model times what ``factor`` says, which is asked in each forward pass."""

    def __init__(self, factor: Callable[["Scaled"], float] = lambda model: model.p) -> None:
        super().__init__()
        self.fc = nn.Linear(FEATURES, CLASSES)
        self.factor, self.p, self.t = factor, 1.0, 0
        self.numbers = [1.0]
        self.settings = SimpleNamespace(p=1.0)
        self.count = itertools.count(1)
        self.draws = random.Random(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * self.factor(self)


def counted(model: Scaled) -> float:
    model.t += 1
    return 1 / model.t


FACTORS: dict[str, Callable[[Scaled], float]] = {
    "an attribute counts": counted,
    "an iterator counts": lambda model: 1 / next(model.count),
    "a list grows": lambda model: model.numbers.append(1.0) or 1 / len(model.numbers),  # type: ignore[func-returns-value]
    "Python draws": lambda model: float(random.random() < 0.5),
    "numpy draws": lambda model: float(np.random.rand()),  # noqa: NPY002
    "the model's own generator draws": lambda model: model.draws.random(),
}


def train(model: nn.Module, **settings: object) -> None:
    corrections = settings.pop("corrections", ())
    training = LocalTraining(
        **{  # type: ignore[arg-type]
            "optimizer": partial(SGD, lr=0.05),
            "local_epochs": None,
            "local_steps": STEPS,
            "batch_size": None,
        }
        | settings
    )
    training(
        model,
        examples(),
        Classification(),
        server_round=1,
        seed=SEED,
        corrections=corrections,  # type: ignore[arg-type]
    )


def plain(model: nn.Module, between: Callable[[], None] = lambda: None) -> None:
    data = examples()
    inputs, targets = data.inputs[data.index], data.targets[data.index]
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    torch.manual_seed(SEED)
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        between()
        optimizer.step()


def recorded(model: nn.Module) -> bool:
    used = get_gradient(model, Classification())
    return any(way == RECORDED for way, _ in used._steps.values())


@pytest.mark.parametrize("factor", FACTORS.values(), ids=FACTORS)
def test_a_step_that_changes_more_than_its_results_stays_as_it_is(
    factor: Callable[[Scaled], float],
) -> None:
    ours, theirs = (seeded(partial(Scaled, factor)) for _ in range(2))
    for model, run in ((ours, train), (theirs, plain)):
        random.seed(2)
        np.random.seed(2)  # noqa: NPY002
        run(model)
    assert_equal(ours, theirs)
    assert not recorded(ours)


def test_a_counter_is_not_set_forward_by_being_looked_at() -> None:
    model = seeded(partial(Scaled, counted))
    train(model)
    assert model.t == STEPS  # type: ignore[comparison-overlap]


CHANGES: dict[str, Callable[[Scaled, float], object]] = {
    "an attribute": lambda model, value: setattr(model, "p", value),
    "in a list": lambda model, value: model.numbers.__setitem__(0, value),
    "in an object": lambda model, value: setattr(model.settings, "p", value),
    "a submodule": lambda model, value: setattr(model.fc, "p", value),
}
READ: dict[str, Callable[[Scaled], float]] = {
    "an attribute": lambda model: model.p,
    "in a list": lambda model: model.numbers[0],
    "in an object": lambda model: model.settings.p,
    "a submodule": lambda model: getattr(model.fc, "p", 1.0),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("where", CHANGES)
def test_what_is_changed_between_rounds_is_noticed(where: str) -> None:
    ours, theirs = (seeded(partial(Scaled, READ[where])) for _ in range(2))
    for value in (1.0, 0.5, 0.25):
        for model, run in ((ours, train), (theirs, plain)):
            CHANGES[where](model, value)  # type: ignore[arg-type]
            run(model)
        assert recorded(ours)
    assert_equal(ours, theirs)


def test_a_hook_and_another_layer_are_noticed() -> None:
    ours, theirs = seeded(perceptron), seeded(perceptron)
    for change in (
        lambda model: None,
        lambda model: model[0].register_forward_hook(lambda module, inputs, output: output / 2),
        lambda model: model.__setitem__(1, nn.Tanh()),
    ):
        for model, run in ((ours, train), (theirs, plain)):
            change(model)  # type: ignore[no-untyped-call]
            run(model)
        assert recorded(ours)
    assert_equal(ours, theirs)


def test_an_attribute_that_is_changed_between_steps_is_noticed() -> None:
    class Fading(Correction):
        def __init__(self, model: Scaled) -> None:
            self.model, self.steps = model, 0

        def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
            self.steps += 1
            if self.steps == STEPS // 2:  # the step is recorded by then
                self.model.p *= 0.5

    ours, theirs = seeded(Scaled), seeded(Scaled)
    train(ours, corrections=[Fading(ours)])  # type: ignore[arg-type]
    plain(theirs, partial(Fading(theirs).transform_gradients, ()))  # type: ignore[arg-type]
    assert_equal(ours, theirs)


def test_another_parameter_of_the_same_shape_is_trained() -> None:
    def twins() -> nn.Module:
        return nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, FEATURES))

    ours, theirs = seeded(twins), seeded(twins)
    for first in (True, False, True):
        for model, run in ((ours, train), (theirs, plain)):
            model[0].requires_grad_(first)  # type: ignore[index]
            model[2].requires_grad_(not first)  # type: ignore[index]
            run(model)
        assert recorded(ours)
    assert_equal(ours, theirs)


def test_a_model_that_keeps_its_parameters_elsewhere_is_left_to_autograd() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(FEATURES, CLASSES)
            self.all = [self.fc.weight, self.fc.bias]

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.all[0].T + self.all[1]

    ours, theirs = seeded(Listed), seeded(Listed)
    train(ours)
    plain(theirs)
    assert_equal(ours, theirs)
    assert not recorded(ours)


def test_nothing_is_recorded_unless_asked_for() -> None:
    model, theirs = seeded(perceptron), seeded(perceptron)
    train(model, trace=False)
    assert not recorded(model)
    train(model)
    assert recorded(model)
    by_hand(theirs, examples(), SGD(theirs.parameters(), lr=0.05), steps=2 * STEPS)
    assert_equal(model, theirs)


def test_what_is_kept() -> None:
    model = Scaled()
    model.table = np.zeros(3)  # type: ignore[assignment]
    model.recent = deque([1])  # type: ignore[assignment]
    model.mask = torch.ones(2)
    model.again = [model]
    model.nan = float("nan")  # type: ignore[assignment]

    def held(change: Callable[[], object]) -> tuple[bool, bool]:
        kept = ModelSnapshot(model, Classification())
        assert kept.has_same_objects()
        assert kept.is_unchanged()
        change()
        return kept.has_same_objects(), kept.is_unchanged()

    assert held(lambda: setattr(model, "p", float("1.0"))) == (False, True)  # the same in another object
    assert held(lambda: setattr(model, "p", 1)) == (False, False)  # whole numbers count otherwise
    assert held(lambda: setattr(model, "new", 1)) == (True, False)
    assert held(lambda: delattr(model, "new")) == (False, False)
    assert held(model.eval) == (False, False)
    for change in (
        lambda: model.table.__setitem__(0, 1),  # type: ignore[operator]
        lambda: model.recent.append(2),  # type: ignore[operator]
        lambda: model.mask.add_(1),
        lambda: next(model.count),
        lambda: model.draws.random(),
    ):
        assert held(change) == (True, False)
    with torch.no_grad():
        assert held(lambda: model.fc.weight.add_(1)) == (True, True)


def test_an_attribute_of_another_name_is_another_one() -> None:
    """There are as many of them as before."""
    model = nn.Linear(FEATURES, CLASSES)
    model.one = 1  # type: ignore[assignment]
    kept = ModelSnapshot(model, Classification())
    del model.one
    model.two = 1  # type: ignore[assignment]
    assert (kept.has_same_objects(), kept.is_unchanged()) == (False, False)


def test_nobody_looks_at_a_models_attributes_before_a_step_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[nn.Module] = []

    class Counted(ModelSnapshot):
        def __init__(self, model: nn.Module, task: object) -> None:
            looks.append(model)
            super().__init__(model, task)

    monkeypatch.setattr(gradient_module, "ModelSnapshot", Counted)
    model = seeded(Scaled)
    train(model, local_steps=3)
    assert not looks
    train(model, local_steps=1)
    assert looks == [model]
    assert recorded(model)
