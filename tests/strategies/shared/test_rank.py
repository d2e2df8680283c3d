"""EVBMF, effective rank and stable rank against vectors computed by independent code."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from strategies.shared.linalg import (
    condition_number,
    effective_rank,
    evbmf,
    knowledge_gain,
    mean_over_unfoldings,
    noise_share,
    stable_rank,
    unfold,
)

VECTORS = np.load(Path(__file__).parents[2] / "golden" / "evbmf.npz")


def cases() -> dict[str, Tensor]:
    matrices = {}
    for key in VECTORS:
        if key.endswith(":input"):
            name, matrix = key.removesuffix(":input"), torch.from_numpy(VECTORS[key])
            if matrix.ndim == 2:
                matrices[name] = matrix
            else:
                matrices |= {f"{name}/{mode}": unfold(matrix, mode) for mode in ("in", "out")}
    return matrices


@pytest.mark.parametrize(("name", "matrix"), cases().items(), ids=cases())
def test_equals_the_vectors(name: str, matrix: Tensor) -> None:
    noise, kept = evbmf(matrix)
    assert noise == pytest.approx(float(VECTORS[f"{name}:sigma2"]), rel=1e-6)
    np.testing.assert_allclose(kept, VECTORS[f"{name}:singular_values"], rtol=1e-6)
    assert effective_rank(matrix) == pytest.approx(float(VECTORS[f"{name}:entropy"]), rel=1e-6)
    assert stable_rank(matrix) == pytest.approx(float(VECTORS[f"{name}:stable_rank"]), rel=1e-6)


def planted(rank: int, noise: float) -> Tensor:
    rng = np.random.default_rng(3)
    low = rng.normal(size=(40, rank)) @ rng.normal(size=(rank, 150))
    return torch.from_numpy(low + noise * rng.normal(size=(40, 150)))


@pytest.mark.parametrize("rank", [1, 4])
def test_planted_rank_and_noise_are_found(rank: int) -> None:
    noise, kept = evbmf(planted(rank, 0.1))
    assert len(kept) == rank
    assert noise == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e4])
def test_scale_changes_no_rank(scale: float) -> None:
    matrix = planted(4, 0.3)
    noise, kept = evbmf(matrix)
    scaled_noise, scaled_kept = evbmf(scale * matrix)
    assert scaled_noise == pytest.approx(scale**2 * noise, rel=1e-6)
    np.testing.assert_allclose(scaled_kept, scale * kept, rtol=1e-6)
    assert effective_rank(scale * matrix) == pytest.approx(effective_rank(matrix), rel=1e-6)


def test_transposing_changes_nothing() -> None:
    matrix = planted(4, 0.3)
    assert evbmf(matrix.T)[0] == pytest.approx(evbmf(matrix)[0], rel=1e-9)
    assert effective_rank(matrix.T) == pytest.approx(effective_rank(matrix), rel=1e-9)


def test_nothing_to_tell_from_noise_has_rank_zero() -> None:
    zero, row = torch.zeros(5, 9), torch.arange(1.0, 8.0).reshape(1, 7)
    assert evbmf(zero)[0] == 0
    for matrix in (zero, row, row.T):
        assert len(evbmf(matrix)[1]) == 0
        assert effective_rank(matrix) == 0
        assert stable_rank(matrix) == 0
        assert condition_number(matrix) == 0
    assert noise_share(zero) == 0


def test_the_noise_is_a_share_of_the_norm() -> None:
    """Of 40 x 150 entries with deviation 0.1 the squared norm is 60."""
    matrix = planted(4, 0.1)
    assert noise_share(matrix) == pytest.approx(60 / float(matrix.square().sum()), rel=0.1)
    assert noise_share(10 * matrix) == pytest.approx(noise_share(matrix), rel=1e-5)
    generator = torch.Generator().manual_seed(0)
    assert noise_share(torch.randn(40, 150, generator=generator)) == pytest.approx(1.0, abs=1e-3)


def test_the_condition_is_the_largest_over_the_least() -> None:
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.normal(size=(n, 3)))[0] for n in (30, 100))
    matrix = torch.from_numpy(u @ np.diag([8.0, 4.0, 2.0]) @ v.T + 1e-4 * rng.normal(size=(30, 100)))
    assert condition_number(matrix) == pytest.approx(4.0, rel=1e-4)
    assert condition_number(planted(1, 0.01)) == 1


def test_rank_one_has_no_entropy() -> None:
    assert effective_rank(planted(1, 0.01)) == 0
    assert stable_rank(planted(1, 0.01)) == 1


def test_equal_singular_values_have_the_logarithm_of_their_number() -> None:
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.normal(size=(n, 3)))[0] for n in (30, 100))
    matrix = torch.from_numpy(u @ v.T + 1e-4 * rng.normal(size=(30, 100)))
    assert effective_rank(matrix) == pytest.approx(np.log(3), rel=1e-4)
    assert stable_rank(matrix) == pytest.approx(3, rel=1e-2)


def test_unfolding_keeps_rows() -> None:
    weight = torch.arange(2 * 3 * 2 * 2).reshape(2, 3, 2, 2)
    assert unfold(weight, "out")[1].tolist() == weight[1].flatten().tolist()
    assert unfold(weight, "in")[2].tolist() == weight[:, 2].flatten().tolist()


def test_mean_over_unfoldings_keeps_the_order_of_the_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(8 * n, 8, 3, 3, generator=generator) for n in (1, 2, 3)]
    for weight in weights:
        weight[0] *= 30  # something stands out
    actual = mean_over_unfoldings(stable_rank, weights)
    expected = [(stable_rank(unfold(w, "in")) + stable_rank(unfold(w, "out"))) / 2 for w in weights]
    assert actual == expected
    assert mean_over_unfoldings(stable_rank, weights, ["in"]) == [
        stable_rank(unfold(w, "in")) for w in weights
    ]


def test_knowledge_gain_counts_relative_to_the_rows() -> None:
    matrix = planted(4, 0.1)
    _, kept = evbmf(matrix)
    assert knowledge_gain(matrix) == pytest.approx(float((kept / kept[0]).sum()) / 40)


def test_threads_of_later_have_as_many_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        mean_over_unfoldings(stable_rank, [torch.randn(4, 3, 3, 3)])
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)
