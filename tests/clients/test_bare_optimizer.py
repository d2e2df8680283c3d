"""Optimisers without torch's wrapping: the same steps, at less cost."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial, wraps

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from clients.optimizer_step import step_without_hooks
from helpers.checkout import ROOT

TRAINS = """
import sys
from functools import partial
import torch
from flwr.app import RecordDict
from clients import Classification, Examples, LocalTraining

examples, task = Examples(torch.randn(8, 3), torch.arange(8) % 2, torch.arange(8), None), Classification()
training = LocalTraining(optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9), keep_optimizer={keep})
model, memory = torch.nn.Linear(3, 2), RecordDict()
for server_round in (1, 2):
    training(model, examples, task, server_round=server_round, seed=0, memory=memory)
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
def test_training_does_not_import_the_compiler(keep: bool) -> None:
    """It takes a second, in every worker and in every process that a supernode starts."""
    command = [sys.executable, "-c", TRAINS.format(keep=keep)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("build", [lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True), Adam])
def test_a_bare_step_is_the_optimisers_own(build: Callable[[list[nn.Parameter]], Optimizer]) -> None:
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(5))]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    optimizer, plain = build(ours), build(theirs)
    step = step_without_hooks(optimizer)
    for _ in range(4):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape)
            q.grad = p.grad.clone()
        with torch.no_grad():
            step()
        plain.step()
    assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


class Shouting(SGD):
    """A user's optimiser, whose step somebody has wrapped."""

    @staticmethod
    def wrapped(step: Callable[..., None]) -> Callable[..., None]:
        @wraps(step)
        def louder(self: Optimizer) -> None:
            step(self)
            self.param_groups[0]["params"][0].data.mul_(2)

        return louder

    @wrapped  # type: ignore[arg-type]
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step()


def with_a_hook(parameters: list[nn.Parameter]) -> Optimizer:
    optimizer = SGD(parameters, lr=0.1)

    def louder(*_: object) -> None:
        parameters[0].data.mul_(2)

    optimizer.register_step_post_hook(louder)
    return optimizer


def with_a_step_of_its_own(parameters: list[nn.Parameter]) -> Optimizer:
    optimizer = SGD(parameters, lr=0.1)
    step = optimizer.step
    optimizer.step = lambda: (step(), parameters[0].data.mul_(2))  # type: ignore[assignment,method-assign]
    return optimizer


@pytest.mark.parametrize("build", [partial(Shouting, lr=0.1), with_a_hook, with_a_step_of_its_own])
def test_what_others_have_put_around_a_step_stays(build: Callable[[list[nn.Parameter]], Optimizer]) -> None:
    p = nn.Parameter(torch.ones(2))
    step = step_without_hooks(build([p]))
    p.grad = torch.full((2,), 5.0)
    with torch.no_grad():
        step()
    assert p.tolist() == [1.0, 1.0]  # 2 (1 - 0.1 x 5)
