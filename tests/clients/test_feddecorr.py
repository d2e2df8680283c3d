"""FedDecorr's term: by hand, its reduction, and what it refuses; tests/agreement/ has it beside plain torch."""

import numpy as np
import pytest
import torch
from torch import nn

from clients import FedDecorr
from helpers.plain_loop import assert_equal, examples, perceptron, seeded, start_of, train


def term_of(z: list[list[float]], beta: float) -> float:
    """Return the term of these representations, which the last layer of a model is given."""
    model, x = nn.Sequential(nn.Identity(), nn.Linear(len(z[0]), 2)), torch.tensor(z)
    term = FedDecorr(start_of(model), beta)
    return term.loss_term(model, x, model(x), torch.zeros(len(z), dtype=torch.long)).item()


def test_the_term_by_hand() -> None:
    """Correlations 1 on the diagonal and 1/2 beside it: (2 + 2 / 4) / 4, times beta = 4."""
    z = [[1.0, 1.0], [2.0, 3.0], [3.0, 2.0]]
    assert np.corrcoef(np.transpose(z))[0, 1] == pytest.approx(0.5)
    assert term_of(z, 4.0) == pytest.approx(2.5)


def test_what_does_not_vary_and_a_single_example_have_no_part_in_it() -> None:
    assert term_of([[1.0, 7.0], [2.0, 7.0]], 4.0) == pytest.approx(1.0)
    assert term_of([[1.0, 7.0]], 4.0) == 0


def test_without_strength_it_is_fedavg_and_nothing_stays_on_the_model() -> None:
    plain, same, other = (seeded(perceptron) for _ in range(3))
    train(plain, examples(), batch_size=16)
    for model, beta in ((same, 0.0), (other, 5.0)):
        train(model, examples(), batch_size=16, corrections=[FedDecorr(start_of(model), beta)])
    assert_equal(plain, same)
    assert not torch.allclose(plain[0].weight, other[0].weight, rtol=1e-3)
    assert not any(layer._forward_pre_hooks for layer in other.modules())


def test_what_it_cannot_work_with_is_refused() -> None:
    with pytest.raises(ValueError, match=r"feddecorr\.beta=-1 is out of range"):
        FedDecorr(start_of(perceptron()), -1)
    with pytest.raises(ValueError, match="corrections=feddecorr needs a model with a linear layer"):
        FedDecorr(start_of(nn.Conv2d(1, 1, 1)))
