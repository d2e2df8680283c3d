"""Our FedAdagrad, FedAdam and FedYogi beside Flower's, on the same random replies of several shapes.

Compared: the model after each of six rounds, in float64. Tolerance: 1e-12 of a model of size 1. Flower
averages the nodes' models and subtracts w, ours averages differences: each mean pseudo-gradient is
rounded to w's last digit, which an adaptive direction magnifies by up to 1 / epsilon; epsilon is 0.02 or
above here.

Where the definitions differ:
* FedYogi and FedAdagrad are the same rule. Flower's FedAdagrad has beta1 = 0 alone.
* Flower's FedAdam multiplies the step of round t by sqrt(1 - beta2^(t+1)) / (1 - beta1^(t+1)), with the
  exponent one too high for Kingma and Ba's correction; ours has no such factor (Algorithm 2 of Reddi et
  al.).
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from helpers.peers.random_updates import SHAPES, all_close, close, draws, flat, models, start
from strategies import Adagrad, Adam, Constant, FedAdagrad, FedAdam, FedYogi, Yogi

ROUNDS, NODES, ETA, BETA1, BETA2 = 6, 5, 0.3, 0.8, 0.95
Make = Callable[[float], Strategy]


def stock(epsilon: float) -> dict[str, float | int]:
    return {
        "fraction_evaluate": 0.0,
        "min_train_nodes": NODES,
        "min_available_nodes": NODES,
        "eta": ETA,
        "tau": epsilon,
    }


def fedadam(epsilon: float, **options: bool) -> FedAdam:
    part = Adam(beta1=BETA1, beta2=BETA2, epsilon=epsilon, **options)  # type: ignore[arg-type]
    return FedAdam(server_optimizer=part, step_size=Constant(ETA))


PAIRS: dict[str, tuple[Make, Make]] = {
    "fedyogi": (
        lambda e: FedYogi(
            server_optimizer=Yogi(beta1=BETA1, beta2=BETA2, epsilon=e), step_size=Constant(ETA)
        ),
        lambda e: flower.FedYogi(beta_1=BETA1, beta_2=BETA2, **stock(e)),  # type: ignore[arg-type]
    ),
    "fedadagrad": (
        lambda e: FedAdagrad(server_optimizer=Adagrad(epsilon=e), step_size=Constant(ETA)),
        lambda e: flower.FedAdagrad(**stock(e)),  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("epsilon", [0.02, 1.0])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("name", PAIRS)
def test_the_same_models(name: str, shapes: str, epsilon: float) -> None:
    ours, theirs = PAIRS[name]
    first, rounds = start(shapes), draws(shapes, NODES, ROUNDS, seed=9)
    actual = models(ours(epsilon), first, rounds)
    all_close(actual, models(theirs(epsilon), first, rounds), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shapes", ["vector", "layers"])
def test_fedadam_is_flowers_without_its_factor(shapes: str) -> None:
    """On the same replies both have the same m and v, so that their steps differ by the factor alone."""
    epsilon, first, rounds = 0.02, start(shapes), draws(shapes, NODES, ROUNDS, seed=9)
    theirs = models(
        flower.FedAdam(beta_1=BETA1, beta_2=BETA2, **stock(epsilon)),  # type: ignore[arg-type]
        first,
        rounds,
    )
    positions = torch.stack([flat(model) for model in [first, *models(fedadam(epsilon), first, rounds)]])
    t = np.arange(1, ROUNDS + 1)
    factor = np.sqrt(1 - BETA2 ** (t + 1)) / (1 - BETA1 ** (t + 1))
    steps = torch.from_numpy(factor)[:, None] * positions.diff(dim=0)
    expected = torch.stack([flat(model) for model in theirs])
    close(positions[0] + steps.cumsum(0), expected, rtol=1e-12, atol=1e-12)
    assert (positions[1:] - expected).abs().max() > 0.1


def test_flowers_factor_is_not_kingma_and_bas() -> None:
    """Nor does our ``bias_correction`` give them: the first step differs by more than a tenth."""
    epsilon, first, rounds = 1e-12, start("vector"), draws("vector", NODES, 1, seed=9)
    theirs = flower.FedAdam(beta_1=BETA1, beta_2=BETA2, **stock(epsilon))  # type: ignore[arg-type]
    (actual,), (expected,) = (
        models(strategy, first, rounds) for strategy in (fedadam(epsilon, bias_correction=True), theirs)
    )
    ratio = (flat(expected) - flat(first)) / (flat(actual) - flat(first))
    moved = ratio[torch.isfinite(ratio)]
    predicted = np.sqrt((1 - BETA2**2) / (1 - BETA2)) * (1 - BETA1) / (1 - BETA1**2)
    assert abs(predicted - 1) > 0.1
    close(moved, np.full(len(moved), predicted), rtol=1e-6)
