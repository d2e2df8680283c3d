"""What is done to a step's gradient: FedProx' term, and what is observed of it."""

from functools import partial

import pytest
import torch
from flwr.app import RecordDict
from plain_loop import SEED, by_hand, examples, perceptron, seeded
from torch import nn
from torch.optim import SGD

from clients import Classification, GradientVariance, LocalTraining, Proximal, RoundStart


def start_of(model: nn.Module) -> RoundStart:
    task, data = Classification(), examples()
    return RoundStart(model, data, task, partial(SGD, lr=0.1), 1, None, RecordDict(), RecordDict(), 0)


@pytest.mark.parametrize("clip", [None, 0.5], ids=["", "clipped"])
def test_the_proximal_term_by_hand(clip: float | None) -> None:
    """Clipping comes after the term, as if it stood in the loss."""
    ours, plain, data = seeded(perceptron), seeded(perceptron), examples()
    training = LocalTraining(
        optimizer=partial(SGD, lr=0.1, momentum=0.9), local_epochs=2, batch_size=16, max_grad_norm=clip
    )
    term = Proximal(start_of(ours), mu=0.7)
    training(ours, data, Classification(), server_round=1, seed=SEED, corrections=[term])
    optimizer = SGD(plain.parameters(), lr=0.1, momentum=0.9)
    by_hand(plain, data, optimizer, epochs=2, batch_size=16, clip=clip, mu=0.7)
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_the_proximal_term_is_the_gradient_of_the_squared_distance() -> None:
    start = torch.randn(4, dtype=torch.float64)
    w = nn.Parameter(start.clone())
    term = Proximal(start_of(nn.ParameterList([w])), mu=0.3)
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


def test_gradient_variance_of_two_steps_is_divided_by_one() -> None:
    """Of 1 and 4 it is 4.5, of 2 and 2 it is 0: 2.25 over the two coordinates."""
    w, observed, metrics = nn.Parameter(torch.zeros(2)), GradientVariance(), dict[str, float]()
    for gradient in ([1.0, 2.0], [4.0, 2.0]):
        w.grad = torch.tensor(gradient)
        observed([w])
    observed.finish([w], metrics)
    assert metrics == {"gradient-variance": 2.25}
