"""A view is left out of a replay only where it is the tensor as it was."""

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from clients.fast.trace import make_replay


def again(function, *arguments: Tensor) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """Return what a replay gives for the arguments times two."""
    step = make_replay(make_fx(function)(*arguments), arguments)
    assert step is not None
    with torch.no_grad():
        return step(*(2 * each for each in arguments))


def test_more_rows_of_one_without_another_stride() -> None:
    """A row of an expanded tensor has the stride 0 already; five of it are another shape, same strides."""

    def summed(x: Tensor) -> list[Tensor]:
        row = x.expand(4, 3)[:1]
        wider = row.expand(5, 3)
        assert wider.stride() == row.stride()
        return [wider.sum(0)]

    assert again(summed, torch.tensor([1.0, 2.0, 3.0]))[0].tolist() == [10, 20, 30]


def test_another_shape() -> None:
    def products(x: Tensor) -> list[Tensor]:
        return [(x.view(3, 2) @ x.view(2, 3)).sum(0), x.view(2, 3) + 1]

    x = torch.arange(6.0).view(2, 3)
    for actual, expected in zip(again(products, x), products(2 * x), strict=True):
        assert torch.equal(actual, expected)
