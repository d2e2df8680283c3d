"""SAND-, magnitude and geometric-mean masks: by hand, beside NumPy and SciPy, and what they become."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import gmean
from torch import Tensor

from strategies import AgreementMask, AndMask, GeometricMask, MagnitudeMask, Mask, SandMask

ROWS = [
    # agree   A = .5   A = 0   a node at rest   all at rest
    [1.0, 2.0, 1.0, 4.0, 0.0],
    [2.0, 2.0, 3.0, 1.0, 0.0],
    [4.0, 4.0, -2.0, 2.0, 0.0],
    [8.0, -4.0, -2.0, 0.0, 0.0],
]


def factors(mask: Mask, rows: Tensor | list[list[float]]) -> NDArray[np.float64]:
    deltas = torch.as_tensor(rows, dtype=torch.float64) if isinstance(rows, list) else rows
    out = torch.empty_like(deltas[0])
    before = deltas.clone()
    mask.mask_values(deltas, torch.empty_like(deltas), out)
    assert torch.equal(before, deltas)
    actual: NDArray[np.float64] = out.numpy()
    return actual


def random(nodes: int, *, zeros: bool = False) -> Tensor:
    rows = torch.randn(nodes, 500, generator=torch.Generator().manual_seed(nodes), dtype=torch.float64)
    return rows * (rows.abs() > 0.3) if zeros else rows


def test_the_magnitude_mask_by_hand() -> None:
    """B = 15/15, 4/12, 0/8, 7/7, and 0 for 0/0."""
    assert factors(MagnitudeMask(0.4), ROWS) == pytest.approx([1, 1 / 3, 0, 1, 0], rel=1e-12)
    assert factors(MagnitudeMask(0.3), ROWS) == pytest.approx([1, 1, 0, 1, 0], rel=1e-12)


def test_the_geometric_mask_by_hand() -> None:
    """64^(1/4) / 3.75 where all agree; 64^(1/4) / 3 at A = 0.5; a node at rest makes the product 0."""
    root = 64**0.25
    assert factors(GeometricMask(1.0), ROWS) == pytest.approx([root / 3.75, 0, 0, 0, 0], rel=1e-12)
    assert factors(GeometricMask(0.5), ROWS) == pytest.approx([root / 3.75, root / 3, 0, 0, 0], rel=1e-12)


def test_the_sand_mask_by_hand() -> None:
    """A = 1, .5, 0, .75, 0; the variances of the first and the fourth are 28.75 / 3 and 8.75 / 3."""
    first = np.var([1, 2, 4, 8], ddof=1)
    fourth = np.var([4, 1, 2, 0], ddof=1)
    assert (first, fourth) == (pytest.approx(28.75 / 3), pytest.approx(8.75 / 3))
    expected = [np.tanh(3 * 0.5 / first), 0, 0, np.tanh(3 * 0.25 / fourth), 0]
    assert factors(SandMask(0.5, k=3.0), ROWS) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("zeros", [False, True], ids=["", "zeros"])
@pytest.mark.parametrize("tau", [0.0, 0.3, 0.4, 1.0])
@pytest.mark.parametrize("nodes", [2, 5, 10])
def test_as_numpy_and_scipy(nodes: int, tau: float, zeros: bool) -> None:
    given = random(nodes, zeros=zeros)
    rows = given.numpy()
    signs = np.abs(np.sign(rows).sum(0))
    agree, sizes = signs >= tau * nodes - 1e-9, np.abs(rows)
    purity = np.divide(np.abs(rows.sum(0)), sizes.sum(0), out=np.zeros(500), where=sizes.sum(0) > 0)
    close = {"rtol": 1e-12, "atol": 1e-14}
    np.testing.assert_allclose(
        factors(MagnitudeMask(tau), given), np.where(purity >= tau, 1, purity), **close
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(gmean(sizes, axis=0) / sizes.mean(0))
        sand = np.tanh(0.7 * (signs / nodes - tau) / rows.var(0, ddof=1))
    np.testing.assert_allclose(factors(GeometricMask(tau), given), np.where(agree, ratio, 0), **close)
    expected = np.where(np.isclose(signs, tau * nodes), 0, np.maximum(np.nan_to_num(sand), 0))
    np.testing.assert_allclose(factors(SandMask(tau, k=0.7), given), expected, **close)


def test_where_all_agree_the_direction_is_the_geometric_mean() -> None:
    rows = random(4).abs() * torch.tensor([1.0, -1.0]).repeat(250)
    actual = factors(GeometricMask(1.0), rows) * rows.mean(0).numpy()
    expected = gmean(np.abs(rows.numpy()), axis=0) * np.tile([1, -1], 250)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tau", [0.2, 0.4, 0.5, 1.0])
def test_updates_of_equal_size_give_the_sign_masks(tau: float, dtype: torch.dtype) -> None:
    equal = (random(10).sign() * 0.37).to(dtype)
    bound = 8 * torch.finfo(dtype).eps
    for mask, other in ((MagnitudeMask(tau), AgreementMask(tau)), (GeometricMask(tau), AndMask(tau))):
        np.testing.assert_allclose(factors(mask, equal), factors(other, equal), rtol=bound, atol=bound)


def test_a_steep_sand_mask_is_the_and_mask_but_for_the_threshold_itself() -> None:
    given = random(10)
    at = np.isclose(np.abs(np.sign(given.numpy()).sum(0)), 4)
    assert at.any()
    actual = factors(SandMask(0.4, k=1e12), given)
    assert (actual[at] == 0).all()
    assert (actual[~at] == factors(AndMask(0.4), given)[~at]).all()


def test_no_threshold() -> None:
    """It masks nothing of the first, and still shapes the others."""
    assert MagnitudeMask(0).is_identity
    assert not GeometricMask(0).is_identity
    assert not SandMask(0).is_identity


def test_a_single_reply_agrees_with_itself() -> None:
    for mask in (MagnitudeMask(), GeometricMask(), SandMask()):
        assert factors(mask, [[2.0, -3.0]]).tolist() == pytest.approx([1, 1])
