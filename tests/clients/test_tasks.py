"""Losses by hand, and rows that only fill a batch up."""

import pytest
import torch

from clients import Classification, LeastSquares, Task
from helpers.plain_loop import CLASSES


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
