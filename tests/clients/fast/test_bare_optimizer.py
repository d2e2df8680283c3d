"""Optimisers without torch's wrapping: the same steps, at less cost."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from checkout import ROOT
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from clients.fast.bare_optimizer import bare_step

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
    step = bare_step(optimizer)
    for _ in range(4):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape)
            q.grad = p.grad.clone()
        with torch.no_grad():
            step()
        plain.step()
    assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))
