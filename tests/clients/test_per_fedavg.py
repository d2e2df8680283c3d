"""Per-FedAvg: by hand, beside plain torch, its reduction, and what it is good for."""

from functools import partial
from itertools import repeat
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import hvp
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from clients import Classification, Correction, LocalTraining, PerFedAvg, RoundStart
from clients.methods.per_fedavg import compute_hessian_product
from helpers.one_node import OneNode
from helpers.plain_loop import SEED, assert_equal, examples, perceptron, seeded
from helpers.runs import played
from strategies.shared.seeding import Purpose, torch_seed

SMALL = "dataset=digits num_nodes=3 rounds=2 node_test_fraction=0.2"
ORDERS = pytest.mark.parametrize("first_order", [True, False], ids=["first order", "second order"])


@ORDERS
def test_a_round_and_an_evaluation_by_hand(first_order: bool) -> None:
    """F = (1 - a)^2 / 2 has the gradient a - 1 and the Hessian 1; alpha = 0.5.

    From 0: w' = 0.5 and the gradient there -0.5; a = 0.05, or of the second order half of it. At 0.2 the
    node is judged by 0.2 + 0.5 * 0.8.
    """
    node = OneNode({"personal": PerFedAvg(0.5, first_order)}, bias=False)
    assert node.trained(0.0, 1) == pytest.approx({"weight": 0.05 if first_order else 0.025})
    assert node.loss(0.2) == pytest.approx(0.4**2)


class Ridge(Correction):
    """The term |w|^2, which has a Hessian of its own."""

    def __init__(self, start: RoundStart | None = None) -> None:
        """Need nothing of the round."""

    def loss_term(self, model: nn.Module, inputs: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        return sum((p.square().sum() for p in model.parameters()), outputs.new_zeros(()))


@pytest.mark.parametrize("ridge", [0, 1], ids=["", "with a term"])
def test_of_all_examples_it_descends_the_loss_after_a_step(ridge: int) -> None:
    """D = D' = D'': autograd differentiates F(w - alpha grad F(w)) as a whole."""
    model, data = seeded(perceptron).double(), examples()
    inputs, targets = data.inputs[data.index].double(), data.targets[data.index]
    parameters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}

    def loss(values: dict[str, Tensor]) -> Tensor:
        squares = torch.stack([value.square().sum() for value in values.values()]).sum()
        return cross_entropy(functional_call(model, values, inputs), targets) + ridge * squares

    slopes = torch.autograd.grad(loss(parameters), parameters.values(), create_graph=True)
    stepped = {name: p - 0.3 * g for (name, p), g in zip(parameters.items(), slopes, strict=True)}
    gradient = torch.autograd.grad(loss(stepped), parameters.values())

    training = LocalTraining(optimizer=partial(SGD, lr=0.1), batch_size=None, personal=PerFedAvg(0.3))
    double = type(data)(data.inputs.double(), data.targets, data.index)
    training(
        model, double, Classification(), server_round=1, seed=SEED, corrections=list(repeat(Ridge(), ridge))
    )
    for parameter, start, g in zip(model.parameters(), parameters.values(), gradient, strict=True):
        torch.testing.assert_close(parameter, start - 0.1 * g, rtol=1e-12, atol=1e-14)


@ORDERS
def test_the_three_batches_beside_plain_torch(first_order: bool) -> None:
    """Two epochs of 50 examples by 16: the last batches are shorter; momentum beyond the paper."""
    alpha, model, data = 0.2, seeded(perceptron), examples()
    training = LocalTraining(
        optimizer=partial(SGD, lr=0.1, momentum=0.9),
        local_epochs=2,
        batch_size=16,
        personal=PerFedAvg(alpha, first_order),
    )
    metrics = training(model, data, Classification(), server_round=1, seed=SEED)

    plain, inputs, targets = seeded(perceptron), data.inputs[data.index], data.targets[data.index]
    names = [name for name, _ in plain.named_parameters()]

    def batches(seed: int, epochs: int) -> list[Tensor]:
        draws = torch.Generator().manual_seed(seed)
        return [rows for _ in range(epochs) for rows in torch.randperm(50, generator=draws).split(16)]

    def loss(rows: Tensor, *values: Tensor) -> Tensor:
        outputs = functional_call(plain, dict(zip(names, values, strict=True)), inputs[rows])
        return cross_entropy(outputs, targets[rows])

    others = iter(batches(torch_seed(SEED, Purpose.META), 4))
    optimizer, total = SGD(plain.parameters(), lr=0.1, momentum=0.9), 0.0
    for rows in batches(SEED, 2):
        w = tuple(plain.parameters())
        slopes = torch.autograd.grad(loss(next(others), *w), w)
        stepped = [(p - alpha * g).detach().requires_grad_() for p, g in zip(w, slopes, strict=True)]
        loss_after = loss(rows, *stepped)
        total += loss_after.item() * len(rows)
        gradient = torch.autograd.grad(loss_after, stepped)
        if not first_order:
            second = next(others)
            curved = hvp(lambda *values, second=second: loss(second, *values), w, gradient)[1]
            gradient = tuple(g - alpha * h for g, h in zip(gradient, curved, strict=True))
        for p, g in zip(w, gradient, strict=True):
            p.grad = g
        optimizer.step()
    for actual, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-7)
    assert metrics["loss"] == pytest.approx(total / 100, rel=1e-5)
    assert metrics["local-steps"] == 8


@ORDERS
def test_without_a_step_it_is_fedavg(first_order: bool) -> None:
    settings = {"optimizer": partial(SGD, lr=0.1), "local_epochs": 2, "batch_size": 16}
    models = [seeded(perceptron) for _ in range(3)]
    methods = None, PerFedAvg(0.0, first_order), PerFedAvg(0.1, first_order)
    for model, method in zip(models, methods, strict=True):
        training = LocalTraining(**settings, personal=method)
        training(model, examples(), Classification(), server_round=1, seed=SEED)
    assert_equal(models[0], models[1])
    assert not torch.equal(models[0][0].weight, models[2][0].weight)


def test_a_run_without_a_step_is_fedavgs_evaluations_too(tmp_path: Path) -> None:
    plain = played(SMALL, tmp_path / "plain")
    assert plain.equals(played(f"{SMALL} personal=per_fedavg client.personal.alpha=0", tmp_path / "none"))
    assert not plain.equals(played(f"{SMALL} personal=per_fedavg", tmp_path / "some"))


def test_a_loss_that_is_linear_has_no_curvature() -> None:
    w = nn.Parameter(torch.ones(3))
    assert compute_hessian_product((2 * w).sum(), [w], [torch.ones(3)])[0].tolist() == [0, 0, 0]
