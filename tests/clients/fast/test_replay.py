"""Replay: the recorded operations, on new tensors, to the bit."""

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from clients.fast.trace import make_replay


def recorded(function, *arguments: Tensor):  # type: ignore[no-untyped-def]
    return make_replay(make_fx(function)(*arguments), arguments)


def gradient(w: Tensor, x: Tensor, y: Tensor) -> list[Tensor]:
    leaf = w.detach().requires_grad_()
    loss = 0.25 * torch.nn.functional.cross_entropy(x @ leaf, y)
    return [*torch.autograd.grad(loss, [leaf]), loss]


def batch(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    w, x = torch.randn(5, 3, generator=draws), torch.randn(7, 5, generator=draws)
    return w, x, torch.randint(3, (7,), generator=draws)


def test_other_tensors_of_the_same_shapes() -> None:
    again = recorded(gradient, *batch(0))
    for seed in (1, 2):
        with torch.no_grad():
            actual = again(*batch(seed))
        assert all(torch.equal(a, b) for a, b in zip(actual, gradient(*batch(seed)), strict=True))


def test_what_depends_on_shapes_alone_is_computed_once() -> None:
    operations = []

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            operations.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    again = recorded(gradient, *batch(0))
    with torch.no_grad(), Counting():
        again(*batch(1))
    assert "ones_like" not in operations
    assert operations.count("mul") == 1  # of the loss; that of its gradient is known
    assert {"mm", "nll_loss_backward"} <= set(operations)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
def test_a_whole_number_as_a_factor_gives_the_same_bits_and_dtype(dtype: torch.dtype) -> None:
    def scaled(w: Tensor) -> list[Tensor]:
        return [w * 30, 16_777_217 * w, w * True]

    w = (100 * torch.randn(50, generator=torch.Generator().manual_seed(0))).to(dtype)
    actual = recorded(scaled, w)(w)
    for mine, theirs in zip(actual, scaled(w), strict=True):
        assert mine.dtype == theirs.dtype == dtype
        assert torch.equal(mine, theirs)


def test_a_returned_constant_is_a_fresh_one() -> None:
    """A gradient that does not depend on the data may be clipped in place, and is not what it was then."""

    def linear(w: Tensor) -> list[Tensor]:
        leaf = w.detach().requires_grad_()
        return [*torch.autograd.grad((2 * leaf).sum(), [leaf])]

    again = recorded(linear, torch.zeros(3))
    with torch.no_grad():
        again(torch.zeros(3))[0].mul_(10)
        assert again(torch.zeros(3))[0].tolist() == [2, 2, 2]


def test_a_returned_view_of_a_constant_is_a_fresh_one() -> None:
    def both(w: Tensor) -> list[Tensor]:
        ones = torch.ones_like(w)
        return [ones.view(-1), w + ones]

    again = recorded(both, torch.zeros(2, 2))
    with torch.no_grad():
        again(torch.zeros(2, 2))[0].mul_(10)
        flat, plus = again(torch.ones(2, 2))
    assert flat.tolist() == [1, 1, 1, 1]
    assert plus.tolist() == [[2, 2], [2, 2]]


def test_random_and_in_place_steps_are_refused() -> None:
    assert recorded(lambda x: [torch.nn.functional.dropout(x)], torch.ones(3)) is None
    assert recorded(lambda x: [x.clone().add_(1)], torch.ones(3)) is None


def test_a_function_of_the_same_name_that_does_something_else_is_not_taken() -> None:
    """torch.sum(x, 0) of whole numbers is aten.sum.dim_IntList; of the other overloads none is called."""
    x = torch.arange(6).view(2, 3)
    again = recorded(lambda x: [x.sum(0, dtype=torch.float32), x.max(1)[0]], x)
    with torch.no_grad():
        sums, most = again(x + 1)
    assert sums.dtype == torch.float32
    assert sums.tolist() == [5, 7, 9]
    assert most.tolist() == [3, 6]
