"""Closeness in plain numbers, on both sides of what is allowed."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clients.fast.trace import PrecisionRecorder, are_close, is_conclusive, without_tf32

EXPECTED = (3.0, 4.0)  # the norms of two parameters' gradients, 5 of both together
INF, NAN = float("inf"), float("nan")


def gradients(*norms: float) -> list[Tensor]:
    """Return one gradient of each norm, along the first axis."""
    return [torch.tensor([norm, 0.0], dtype=torch.float64) for norm in norms]


def beside(first: float, second: float, eps: float = 1e-16) -> bool:
    pair = [torch.tensor([0.0, shift]).double() for shift in (first, second)]
    return are_close(
        [a + b for a, b in zip(gradients(*EXPECTED), pair, strict=True)], gradients(*EXPECTED), eps
    )


@pytest.mark.parametrize(
    ("eps", "first", "second"),
    [
        (1e-16, 0.01 * 3 + 1e-4 * 5, 0.01 * 4 + 1e-4 * 5),
        (1e-3, 0.032 * 3 + 4e-3 * 5, 0.032 * 4 + 4e-3 * 5),  # 32 and 4 units
        (2.0**-7, 0.25 * 3 + 4 / 128 * 5, 0.25 * 4 + 4 / 128 * 5),  # bfloat16
    ],
)
def test_a_share_of_each_gradient_and_a_floor_of_all(eps: float, first: float, second: float) -> None:
    assert beside(0.999 * first, 0, eps)
    assert beside(0, -0.999 * second, eps)
    assert beside(0.999 * first, 0.999 * second, eps)
    assert not beside(1.001 * first, 0, eps)
    assert not beside(0, 1.001 * second, eps)


def test_a_gradient_of_0_may_differ_by_the_floor() -> None:
    assert are_close(gradients(5, 4.9e-4), gradients(5, 0), 1e-16)
    assert not are_close(gradients(5, 5.1e-4), gradients(5, 0), 1e-16)
    assert not are_close(gradients(1e-30), gradients(0), 1e-16)


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ((INF, 1), (INF, 1), True),
        ((NAN, 1), (INF, 1), True),
        ((INF, 1), (NAN, 1), True),
        ((2, 1), (NAN, 1), False),
        ((INF, 1), (2, 1), False),
        ((2, 1), (INF, 1), False),
        ((NAN, 1.1), (NAN, 1), False),
        ((NAN, NAN), (NAN, NAN), True),
    ],
)
def test_what_is_not_finite_is_so_in_both(
    actual: tuple[float, float], expected: tuple[float, float], same: bool
) -> None:
    assert are_close(gradients(*actual), gradients(*expected), 1e-16) is same


@pytest.mark.parametrize(
    ("norms", "is_close"),
    [((0, 0), False), ((0, 1e-30), True), ((1, INF), False), ((NAN, 1), False), ((2,), True)],
)
def test_what_a_gradient_tells(norms: tuple[float, ...], is_close: bool) -> None:
    assert is_conclusive(gradients(*norms)) is is_close


@pytest.mark.parametrize(
    "dtypes", [(torch.float64,), (torch.float32, torch.float64), (torch.bfloat16, torch.float32)]
)
def test_the_coarsest_precision_that_is_computed_in(dtypes: tuple[torch.dtype, ...]) -> None:
    values = [torch.ones(2, dtype=dtype) for dtype in dtypes]
    whole = torch.arange(3)
    with PrecisionRecorder() as precision:
        _ = [value + value for value in values], whole + whole
    assert precision.eps == torch.finfo(dtypes[0]).eps


def test_tf32_is_off_meanwhile() -> None:
    kinds: list[Any] = [torch.backends.cudnn, torch.backends.cuda.matmul]
    before = [kind.allow_tf32 for kind in kinds]
    assert any(before)

    @without_tf32()
    def fails() -> None:
        assert not any(kind.allow_tf32 for kind in kinds)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fails()
    assert [kind.allow_tf32 for kind in kinds] == before


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="torch has no newer names for it")
def test_who_chooses_by_torchs_newer_names_is_left_alone() -> None:
    convolutions = torch.backends.cudnn.conv
    before = convolutions.fp32_precision
    try:
        convolutions.fp32_precision = "ieee"  # and recurrent layers in TF32: the older name says neither
        with without_tf32():
            assert convolutions.fp32_precision == "ieee"
        assert convolutions.fp32_precision == "ieee"
    finally:
        convolutions.fp32_precision = before
    assert torch.backends.cudnn.allow_tf32
