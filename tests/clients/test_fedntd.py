"""FedNTD's term: by hand, its reduction, and what it refuses; tests/agreement/ has it beside plain torch."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from clients import FedNTD, LeastSquares
from helpers.plain_loop import assert_equal, examples, perceptron, seeded, start_of, train


def scaling(factor: float) -> nn.Module:
    model = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(factor * torch.eye(3))
    return model


def test_the_term_by_hand() -> None:
    """Of x = (9, 0, log 3) and label 0, at tau = 1: the global model has (1/4, 3/4), the own one (1/2, 1/2).

    KL = 1/4 log(1/2) + 3/4 log(3/2), times beta = 2; what is said of label 0 has no part in it.
    """
    model, x, y = scaling(1.0), torch.tensor([[9.0, 0.0, math.log(3)]]), torch.tensor([0])
    term = FedNTD(start_of(model), beta=2)
    outputs = torch.tensor([[-5.0, 1.0, 1.0]])
    expected = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert term.loss_term(model, x, outputs, y).item() == pytest.approx(2 * expected)
    model.weight.data.zero_()  # the model in training; the global one stays
    assert term.loss_term(model, x, outputs, y).item() == pytest.approx(2 * expected)


def test_at_the_global_model_it_has_no_slope_and_without_strength_it_is_fedavg() -> None:
    plain, one_step, same, other = (seeded(perceptron) for _ in range(4))
    train(plain, examples(), batch_size=None)
    train(one_step, examples(), batch_size=None, corrections=[FedNTD(start_of(one_step), 5)])
    for a, b in zip(plain.parameters(), one_step.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    train(plain, examples(), local_epochs=9)
    for model, beta in ((same, 0.0), (other, 5.0)):
        train(model, examples(), batch_size=None)
        train(model, examples(), local_epochs=9, corrections=[FedNTD(start_of(model), beta)])
    assert_equal(plain, same)
    assert not torch.allclose(plain[0].weight, other[0].weight, rtol=1e-3)


@pytest.mark.parametrize(("given", "named"), [({"beta": -1}, "beta"), ({"tau": 0}, "tau")])
def test_what_is_out_of_range_is_refused(given: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=rf"fedntd\.{named}=.* is out of range"):
        FedNTD(start_of(perceptron()), **given)


def test_a_task_without_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="corrections=fedntd needs a data set with labels"):
        FedNTD(replace(start_of(perceptron()), task=LeastSquares()))
