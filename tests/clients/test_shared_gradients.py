"""Parameters that have one tensor for a gradient: it is clipped, and restricted, once for each of them."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from clients.compression import GradientRestriction
from helpers.plain_loop import CLASSES, FEATURES, examples, train


class Sum(nn.Module):
    """x (a + b): autograd gives both parameters the same tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(FEATURES, CLASSES))
        self.b = nn.Parameter(torch.zeros(FEATURES, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.a + self.b)


@pytest.mark.parametrize("trace", [True, False])
def test_clipping_goes_as_far_as_it_says(trace: bool) -> None:
    """Of two equal halves of a gradient of norm 0.1 each has the norm 0.1 / sqrt(2)."""
    model = Sum()
    one_step = {"local_steps": 1, "local_epochs": None, "batch_size": None}
    train(model, examples(), optimizer=partial(SGD, lr=1), max_grad_norm=0.1, trace=trace, **one_step)
    for p in (model.a, model.b):
        assert float(p.detach().norm()) == pytest.approx(0.1 / 2**0.5, rel=1e-4)


def test_each_keeps_the_part_that_is_its_own() -> None:
    first, second = (nn.Parameter(torch.zeros(4)) for _ in range(2))
    first.grad = second.grad = torch.ones(4)
    masks = torch.tensor([1.0, 1, 0, 0]), torch.tensor([0.0, 1, 1, 0])
    GradientRestriction([masks[0].mul, masks[1].mul]).transform_gradients([first, second])
    assert first.grad.tolist() == [1, 1, 0, 0]
    assert second.grad.tolist() == [0, 1, 1, 0]
