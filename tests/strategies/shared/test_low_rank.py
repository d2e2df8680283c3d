"""Low rank: a projection on a random subspace of the rows, its code, and what is sent whole."""

import numpy as np
import pytest
import torch

from strategies import LowRank
from strategies.shared.codecs import subspace

VALUES = np.random.default_rng(0).normal(size=(8, 5))


def sent(compression: LowRank, values: np.ndarray, seed: int = 3) -> np.ndarray:
    return compression.decode(compression.encode(values, seed), values.shape, values.dtype)


def projection(rows: int, rank: int, seed: int) -> np.ndarray:
    """Return M (M^T M)^-1 M^T of the random matrix M, which knows nothing of a basis."""
    raw = np.random.PCG64(seed).random_raw(rows * rank).reshape(rows, rank)
    m = raw / 2.0**63 - 1
    return m @ np.linalg.inv(m.T @ m) @ m.T


def test_what_arrives_is_the_part_in_the_subspace() -> None:
    assert sent(LowRank(share=0.25), VALUES) == pytest.approx(projection(8, 2, 3) @ VALUES)
    assert np.linalg.matrix_rank(sent(LowRank(share=0.25), VALUES)) == 2


def test_two_rows_by_hand() -> None:
    """Of two rows one direction a = m / |m| is left: a a^T Delta, sent as a^T Delta."""
    m = np.random.PCG64(3).random_raw(2) / 2.0**63 - 1
    a = m / np.linalg.norm(m)
    values = np.array([[1.0, 2, 3], [4, 5, 6]])
    code = LowRank(share=0.5).encode(values, 3)
    assert code[:8] == (3).to_bytes(8, "little")
    assert np.frombuffer(code[8:]) == pytest.approx(a @ values)
    assert LowRank(share=0.5).decode(code, (2, 3), values.dtype) == pytest.approx(np.outer(a, a @ values))


def test_the_basis_is_orthonormal_and_new_for_each_seed() -> None:
    a = subspace(40, 10, 1)
    assert a.T @ a == pytest.approx(np.eye(10), abs=1e-12)
    assert not torch.allclose(a, subspace(40, 10, 2))


def test_server_and_node_have_the_same_signs_whatever_their_libraries() -> None:
    """A is Gram and Schmidt's of the random matrix, which leaves no sign open."""
    raw = np.random.PCG64(1).random_raw(12).reshape(6, 2) / 2.0**63 - 1
    first = raw[:, 0] / np.linalg.norm(raw[:, 0])
    second = raw[:, 1] - first * (first @ raw[:, 1])
    expected = np.stack([first, second / np.linalg.norm(second)], axis=1)
    assert subspace(6, 2, 1).numpy() == pytest.approx(expected)


def test_the_expectation_is_the_share_of_the_update() -> None:
    actual = np.mean([sent(LowRank(share=0.25), VALUES, seed) for seed in range(4000)], axis=0)
    assert actual == pytest.approx(0.25 * VALUES, abs=0.05)


def test_a_gradient_is_restricted_to_what_will_be_sent() -> None:
    """Of a kernel too: [out, in, height, width] is the matrix [out, in * height * width]."""
    gradient = torch.randn(8, 3, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left = LowRank().restriction(gradient, 5)
    assert left is not None
    part = left(gradient)
    assert sent(LowRank(), part.numpy(), 5) == pytest.approx(part.numpy())
    assert part.flatten(1).numpy() == pytest.approx(projection(8, 2, 5) @ gradient.flatten(1).numpy())


@pytest.mark.parametrize("shape", [(7,), (), (1, 9), (0, 3), (3, 0)], ids=str)
def test_what_is_no_matrix_or_has_one_row_is_trained_and_sent_whole(shape: tuple[int, ...]) -> None:
    values = np.ones(shape)
    assert LowRank(share=0.25).restriction(torch.ones(shape), 1) is None
    assert LowRank(share=0.25).encode(values, 1) == values.tobytes()
    assert sent(LowRank(share=0.25), values).tolist() == values.tolist()


def test_the_code_is_as_long_as_its_share() -> None:
    """16 of 64 rows: 8 bytes of a seed, 16 x 10 numbers of 4 bytes; with 4 bits, 8 more and two limits."""
    values = np.ones((64, 10), np.float32)
    assert len(LowRank(share=0.25).encode(values, 1)) == 8 + 640
    assert len(LowRank(share=0.25, bits=4, rotate=True).encode(values, 1)) == 8 + 8 + 8 + 80


def test_a_matrix_of_another_size_is_refused() -> None:
    code = LowRank(share=0.5).encode(VALUES, 1)
    with pytest.raises(ValueError, match=r"a code of \d+ bytes, expected \d+"):
        LowRank(share=0.5).decode(code[:-1], VALUES.shape, VALUES.dtype)


def test_however_small_the_share_one_direction_is_left() -> None:
    assert LowRank(share=1e-12).rank((64, 10)) == 1
    assert [LowRank(share=0.1).rank((rows, 2)) for rows in (10, 30, 31)] == [1, 3, 4]
