"""Our strategies beside ``torch.optim``, handed the mean pseudo-gradient as the gradient.

Compared: the model after each round of a whole strategy. FedAvg is SGD with lr = eta, the momentum of
FedAvgM SGD's (dampening 0, no Nesterov), FedAdagrad is Adagrad without decay, and FedAdam with
``bias_correction`` Adam; all add epsilon to the root. Tolerance: 1e-12 of a model of size 1, in float64:
the nodes' answers are w - Delta, so that each Delta comes back rounded to w's last digit, and an adaptive
direction magnifies that by up to 1 / epsilon; epsilon is 0.01 or above here.

Where the definitions differ:
* FedAdam without ``bias_correction`` (the default, Algorithm 2 of Reddi et al.): torch takes the same
  steps with lr (1 - beta1^t) / sqrt(1 - beta2^t) and epsilon / sqrt(1 - beta2^t) in round t.
* FedAMS is torch's Adam with ``amsgrad`` where its bias corrections are undone, its epsilon is 0, and the largest v
  begins at ours.
* FedLAMB is timm's Lamb without its clip of the norm. timm's Lars, of You et al. 2017, has the ratio before the
  momentum, ours and ICLR 2020's after it: here Lars is handed the averaged pseudo-gradient, without momentum.
* torch's RMSprop begins at v = 0 as ours does (Adam with beta1 = 0), timm's RMSpropTF at v = 1 with
  epsilon under the root: with v set to 0 before its first step it is our ``epsilon_inside``.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from timm.optim import Lamb, Lars, RMSpropTF
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Optimizer, RMSprop
from torch.optim import Adam as TorchAdam

import strategies
from helpers.peers.random_updates import SHAPES, Model, close, draws, flat, mean, models, start
from strategies import (
    AMS,
    LAMB,
    LARS,
    Adam,
    Constant,
    FedAdagrad,
    FedAdam,
    FedAMS,
    FedAvg,
    FedLAMB,
    FedLARS,
    Momentum,
    PseudoGradientStrategy,
)

ROUNDS, ETA, BETA1, BETA2 = 6, 0.3, 0.8, 0.95
Make = Callable[[list[Parameter]], Optimizer]


def theirs(
    first: Model,
    rounds: list[list[Model]],
    make: Make,
    before: Callable[[Optimizer, int], None] = lambda optimizer, t: None,
) -> Iterator[torch.Tensor]:
    """Yield the parameters after each step; ``before`` may change the settings of step t."""
    parameters = {name: Parameter(torch.from_numpy(w.copy())) for name, w in first.items()}
    optimizer = make(list(parameters.values()))
    for t, deltas in enumerate(rounds, start=1):
        for name, gradient in mean(deltas).items():
            parameters[name].grad = torch.from_numpy(gradient)
        before(optimizer, t)
        optimizer.step()
        yield torch.cat([p.detach().reshape(-1).clone() for p in parameters.values()])


def adam(**options: bool) -> Callable[[float], PseudoGradientStrategy]:
    def make(epsilon: float) -> PseudoGradientStrategy:
        part = Adam(beta1=BETA1, beta2=BETA2, epsilon=epsilon, **options)  # type: ignore[arg-type]
        return FedAdam(server_optimizer=part, step_size=Constant(ETA))

    return make


PAIRS: dict[str, tuple[Callable[[float], PseudoGradientStrategy], Callable[[float], Make]]] = {
    "sgd": (lambda e: FedAvg(step_size=Constant(ETA)), lambda e: lambda p: SGD(p, lr=ETA)),
    "momentum": (
        lambda e: FedAvg(server_optimizer=Momentum(BETA1), step_size=Constant(ETA)),
        lambda e: lambda p: SGD(p, lr=ETA, momentum=BETA1),
    ),
    "adagrad": (
        lambda e: FedAdagrad(
            server_optimizer=strategies.Adagrad(beta1=0.0, epsilon=e), step_size=Constant(ETA)
        ),
        lambda e: lambda p: Adagrad(p, lr=ETA, eps=e),
    ),
    "adam": (adam(bias_correction=True), lambda e: lambda p: TorchAdam(p, ETA, (BETA1, BETA2), e)),
    "rmsprop": (
        lambda e: FedAdam(
            server_optimizer=Adam(beta1=0.0, beta2=BETA2, epsilon=e), step_size=Constant(ETA)
        ),
        lambda e: lambda p: RMSprop(p, ETA, BETA2, e),
    ),
}


def compare(strategy: PseudoGradientStrategy, shapes: str, make: Make, **more: object) -> None:
    first, rounds = start(shapes), draws(shapes, 5, ROUNDS, seed=8)
    vectors = [flat(model) for model in models(strategy, first, rounds)]
    expected = list(theirs(first, rounds, make, **more))  # type: ignore[arg-type]
    close(torch.stack(vectors), torch.stack(expected), rtol=1e-12, atol=1e-12)
    assert (vectors[-1] - vectors[0]).abs().max() > 0.1


@pytest.mark.parametrize("epsilon", [0.01, 1.0])
@pytest.mark.parametrize("shapes", [name for name in SHAPES if name != "number"])
@pytest.mark.parametrize("name", PAIRS)
def test_the_same_models(name: str, shapes: str, epsilon: float) -> None:
    strategy, make = PAIRS[name]
    compare(strategy(epsilon), shapes, make(epsilon))


def test_fedadam_as_printed_is_adam_with_other_settings_in_each_round() -> None:
    epsilon = 0.02

    def undone(optimizer: Optimizer, t: int) -> None:
        second = np.sqrt(1 - BETA2**t)
        optimizer.param_groups[0] |= {"lr": ETA * (1 - BETA1**t) / second, "eps": epsilon / second}

    def make(parameters: list[Parameter]) -> Optimizer:
        return TorchAdam(parameters, betas=(BETA1, BETA2))

    compare(adam()(epsilon), "layers", make, before=undone)


def test_epsilon_inside_is_timms_rmsprop_from_zero() -> None:
    epsilon = 0.02

    def from_zero(optimizer: Optimizer, t: int) -> None:
        if t == 1:
            for p in optimizer.param_groups[0]["params"]:
                optimizer.state[p] = {"step": torch.tensor(0.0), "square_avg": torch.zeros_like(p)}

    strategy = FedAdam(
        server_optimizer=Adam(beta1=0.0, beta2=BETA2, epsilon=epsilon, epsilon_inside=True),
        step_size=Constant(ETA),
    )
    compare(
        strategy,
        "layers",
        lambda p: RMSpropTF(p, lr=ETA, alpha=BETA2, eps=epsilon, momentum=0),
        before=from_zero,
    )


@pytest.mark.parametrize("shapes", [name for name in SHAPES if name != "number"])
@pytest.mark.parametrize("epsilon", [1e-3, 0.5])
def test_fedams(shapes: str, epsilon: float) -> None:
    def undone(optimizer: Optimizer, t: int) -> None:
        for p in optimizer.param_groups[0]["params"] if t == 1 else []:
            zeros = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
            largest = torch.full_like(p, epsilon)
            optimizer.state[p] = {"step": torch.tensor(0.0), "max_exp_avg_sq": largest, **zeros}
        optimizer.param_groups[0]["lr"] = ETA * (1 - BETA1**t) / np.sqrt(1 - BETA2**t)

    strategy = FedAMS(
        server_optimizer=AMS(beta1=BETA1, beta2=BETA2, epsilon=epsilon), step_size=Constant(ETA)
    )
    compare(
        strategy, shapes, lambda p: TorchAdam(p, betas=(BETA1, BETA2), eps=0.0, amsgrad=True), before=undone
    )


@pytest.mark.parametrize("shapes", SHAPES)
def test_fedlamb(shapes: str) -> None:
    part = LAMB(beta1=BETA1, beta2=BETA2, epsilon=0.01)

    def make(parameters: list[Parameter]) -> Optimizer:
        return Lamb(
            parameters,
            lr=ETA,
            betas=(BETA1, BETA2),
            eps=0.01,
            weight_decay=0.0,
            max_grad_norm=None,
            always_adapt=True,
        )

    compare(FedLAMB(server_optimizer=part, step_size=Constant(ETA)), shapes, make)


@pytest.mark.parametrize("shapes", SHAPES)
def test_fedlars(shapes: str) -> None:
    averages = dict[int, torch.Tensor]()

    def averaged(optimizer: Optimizer, t: int) -> None:
        for k, p in enumerate(optimizer.param_groups[0]["params"]):
            average = averages.get(k, torch.zeros_like(p)) * BETA1 + (1 - BETA1) * p.grad
            averages[k] = average.detach()
            p.grad = averages[k].clone()

    def make(parameters: list[Parameter]) -> Optimizer:
        return Lars(parameters, lr=ETA, momentum=0.0, trust_coeff=1.0, eps=1e-3, always_adapt=True)

    strategy = FedLARS(server_optimizer=LARS(beta=BETA1, epsilon=1e-3), step_size=Constant(ETA))
    compare(strategy, shapes, make, before=averaged)
