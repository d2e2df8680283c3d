"""Rotations by hand, and what they are for."""

import numpy as np
import pytest

from strategies import Sketch
from strategies.shared.quantization import rotate_values, unrotate_values

H4 = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2


def signs(size: int, seed: int) -> np.ndarray:
    """Return 1 where the first bit of a seed's 64-bit number is 0, else -1."""
    return np.where(np.random.PCG64([seed, 17]).random_raw(size) < 2**63, 1.0, -1.0)


@pytest.mark.parametrize("seed", range(5))
def test_four_numbers_by_hand(seed: int) -> None:
    values = np.array([1.0, 2, 3, 5])
    assert rotate_values(values, seed) == pytest.approx(H4 @ (signs(4, seed) * values))


def test_seven_numbers_are_four_two_and_one() -> None:
    values = np.array([1.0, 2, 3, 5, 4, -1, 6])
    x = signs(7, 3) * values
    expected = [*(H4 @ x[:4]), (x[4] + x[5]) / 2**0.5, (x[4] - x[5]) / 2**0.5, x[6]]
    assert rotate_values(values, 3) == pytest.approx(expected)


def test_the_signs_say_nothing_of_the_places() -> None:
    """NumPy takes a seed without a further number for one with a 0, from which places are drawn."""
    drawn = np.array([np.random.PCG64(seed).random_raw(64) for seed in range(500)]) / 2.0**64
    actual = np.array([signs(64, seed) for seed in range(500)])
    assert abs(np.corrcoef(drawn.ravel(), actual.ravel())[0, 1]) < 0.02
    assert rotate_values(np.eye(1, 64)[0], 3)[0] == pytest.approx(signs(64, 3)[0] / 8)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 11, 64, 1000, 4097])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_there_and_back(size: int, dtype: type) -> None:
    values = np.random.default_rng(size).standard_t(2, size=size).astype(dtype)
    turned = rotate_values(values, 9)
    assert turned.dtype == dtype
    assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(values), rel=1e-6)
    largest = np.abs(values).max(initial=0)
    assert (
        np.abs(unrotate_values(turned, 9) - values).max(initial=0) <= 4 * np.finfo(dtype).eps * largest * 13
    )
    if size > 20:
        assert not np.allclose(turned, rotate_values(values, 10))


def test_one_large_number_is_spread_evenly() -> None:
    """A unit vector of 1024 numbers becomes 1024 numbers of 1/32."""
    values = np.zeros(1024)
    values[77] = 1
    assert np.abs(rotate_values(values, 1)) == pytest.approx(1 / 32)


def errors(compression: Sketch, values: np.ndarray) -> np.ndarray:
    """Return what one code after another is off by [300, n]."""
    codes = [compression.encode(values, seed) for seed in range(300)]
    return np.array([compression.decode(code, values.shape, values.dtype) for code in codes]) - values


def test_a_rotation_before_it_makes_quantization_finer_and_leaves_it_unbiased() -> None:
    """One number a hundred times as large as the others sets the levels: without it all others are lost."""
    values = np.random.default_rng(0).normal(size=512)
    values[5] = 100
    plain, turned = (errors(Sketch(bits=2, rotate=rotate), values) for rotate in (False, True))
    assert (turned**2).mean() < (plain**2).mean() / 5
    standard_error = np.sqrt((turned**2).mean() / len(turned))
    assert np.abs(turned.mean(0)).max() < 5 * standard_error


def test_the_code_is_eight_bytes_longer() -> None:
    values = np.arange(1000).astype(np.float32)
    plain, turned = (len(Sketch(bits=4, rotate=rotate).encode(values, 1)) for rotate in (False, True))
    assert turned == plain + 8
