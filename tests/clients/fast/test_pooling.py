"""Max pooling in another order of memory: torch's own maxima and places, ties and NaN included."""

import pytest
import torch
from torch import Tensor, nn

from clients.fast.gradient import Gradient
from clients.fast.trace import pool_by_pixels
from clients.tasks import Classification

POOL = torch.ops.aten.max_pool2d_with_indices

SHAPES = [(32, 6, 28, 28), (5, 3, 9, 7), (1, 16, 10, 10), (12, 100, 4, 4), (4, 2, 2, 2)]
GEOMETRIES = [
    ([2, 2],),
    ([2, 2], [2, 2]),
    ([3, 3], [2, 2], [1, 1]),
    ([2, 1], [1, 1], [0, 0], [1, 1]),
    ([2, 2], [2, 2], [0, 0], [1, 1], True),
    ([2, 2], [1, 1], [1, 1], [2, 2]),
]


def images(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Few different values, so that maxima are tied."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_same_maxima_at_the_same_places(
    shape: tuple[int, ...], geometry: tuple[list[int], ...]
) -> None:
    for mine, theirs in zip(
        pool_by_pixels(images(*shape), *geometry), POOL(images(*shape), *geometry), strict=True
    ):
        assert torch.equal(mine, theirs)
        assert mine.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions(dtype: torch.dtype) -> None:
    x = images(8, 4, 6, 6, dtype=dtype)
    for mine, theirs in zip(pool_by_pixels(x, [2, 2]), POOL(x, [2, 2]), strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


def test_nan_and_negative_zero() -> None:
    x = images(8, 4, 6, 6)
    x[0, 0, 0, :2] = float("nan")
    x[1, 1, 2:4, 2:4] = torch.tensor([[-0.0, 0.0], [0.0, -0.0]])
    (mine, my_places), (theirs, their_places) = pool_by_pixels(x, [2, 2]), POOL(x, [2, 2])
    assert mine.numpy().tobytes() == theirs.numpy().tobytes()
    assert torch.equal(my_places, their_places)


@pytest.mark.parametrize(
    "inputs",
    [
        images(3, 8, 8),
        images(4, 3, 8, 8).to(memory_format=torch.channels_last),
        images(3, 1, 8, 8),
        images(2, 4, 8, 8).to("meta"),
    ],
    ids=["no batch", "channels last", "one channel", "elsewhere"],
)
def test_what_is_left_as_it_is(inputs: Tensor) -> None:
    assert pool_by_pixels(inputs, [2, 2]) is NotImplemented


def test_a_traced_step_pools_so_and_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.fast.gradient.EAGER_STEPS_BEFORE_TRACE", 0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 3))
    x, y = images(8, 1, 8, 8), torch.randint(3, (8,))
    gradient, formats = Gradient(model, Classification()), []

    class Pools(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if func is POOL.default:
                formats.append(args[0].is_contiguous())
            return func(*args, **(kwargs or {}))

    parameters = list(model.parameters())
    with torch.no_grad():
        expected, _ = gradient._eager(parameters, x, y)
        gradient(parameters, x, y)
        with Pools():
            actual, _ = gradient(parameters, x, y)
    assert formats == [False]
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
