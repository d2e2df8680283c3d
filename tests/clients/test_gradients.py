"""The gradients of many nodes in one call."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from clients import LeastSquares
from clients.batched.eligibility import StackedGradient, _multiply_by_rows
from clients.fast import gradient as gradient_module
from clients.fast.gradient import Gradient

NODES, FEATURES = 4, 6


class Products(TorchDispatchMode):
    """Notes the shapes that are multiplied."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten.bmm:
            self.shapes.append(tuple(result.shape))
        return result


@pytest.mark.parametrize("examples", [1, 5])
def test_a_single_output_is_a_product_of_rows_once_recorded(
    examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = torch.Generator().manual_seed(0)
    model, task = nn.Linear(FEATURES, 1).double(), LeastSquares(1)
    weights = [torch.randn(NODES, *p.shape, generator=draws).double() for p in model.parameters()]
    inputs = torch.randn(NODES, examples, FEATURES, generator=draws).double()
    targets = torch.randn(NODES, examples, 1, generator=draws).double()
    monkeypatch.setattr(gradient_module, "EAGER_STEPS_BEFORE_TRACE", 0)
    together = StackedGradient(model, task)
    with torch.no_grad():
        together(weights, inputs, targets)
        with Products() as products:
            actual, sums = together(weights, inputs, targets)
    assert products.shapes
    assert all(shape[2] > 1 or shape[1] == 1 for shape in products.shapes)
    for k in range(NODES):
        own = nn.Linear(FEATURES, 1).double()
        own.load_state_dict(dict(zip(("weight", "bias"), (w[k] for w in weights), strict=True)))
        expected, own_sums = Gradient(own, task)._eager(list(own.parameters()), inputs[k], targets[k])
        for mine, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(mine[k], theirs)
        for name, value in own_sums.items():
            torch.testing.assert_close(sums[name][k], value)


@pytest.mark.parametrize(
    ("rows", "columns", "turned"), [(1, 1, False), (2, 1, True), (1, 2, False), (2, 2, False)]
)
def test_a_product_of_single_columns_alone_is_turned(rows: int, columns: int, turned: bool) -> None:
    left, right = torch.randn(NODES, rows, 3).double(), torch.randn(NODES, 3, columns).double()
    actual = _multiply_by_rows(left, right)
    assert (actual is not NotImplemented) == turned
    if turned:
        torch.testing.assert_close(actual, torch.bmm(left, right))
