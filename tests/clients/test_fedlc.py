"""FedLC's loss: by hand, its reduction, and what it refuses; tests/agreement/ has it beside plain torch."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from clients import Classification, Examples, FedLC, LeastSquares
from helpers.plain_loop import assert_equal, examples, perceptron, seeded, start_of, train


def test_the_loss_by_hand() -> None:
    """One example of label 0, 16 of label 1, none of label 2: tau = 2 subtracts 2, 1 and infinity.

    Of the logits (2, 2, 5) and label 0 that is log(1 + e), of (2, 2, 5) and label 1 log(1 + 1 / e).
    """
    own = Examples(torch.zeros(40, 1), torch.arange(40).gt(0).long(), torch.arange(17))
    start = replace(start_of(perceptron()), examples=own)
    outputs = torch.tensor([[2.0, 2.0, 5.0]]).expand(2, -1).clone().requires_grad_()
    loss = FedLC(start, tau=2).replace_loss(nn.Identity(), outputs, outputs, torch.tensor([0, 1]))
    assert loss.item() == pytest.approx((math.log1p(math.e) + math.log1p(1 / math.e)) / 2)
    loss.backward()
    assert outputs.grad is not None
    assert outputs.grad[:, 2].tolist() == [0, 0]


def test_without_a_margin_it_is_fedavg() -> None:
    models = [seeded(perceptron) for _ in range(3)]
    plain = train(models[0], examples(), batch_size=16)
    same, other = (
        train(model, examples(), batch_size=16, corrections=[FedLC(start_of(model), tau)])
        for model, tau in zip(models[1:], (0.0, 2.0), strict=True)
    )
    assert_equal(models[0], models[1])
    assert plain == same
    assert not models[0][0].weight.equal(models[2][0].weight)
    assert other["loss"] != plain["loss"]


def test_what_it_cannot_work_with_is_refused() -> None:
    start = start_of(perceptron())
    with pytest.raises(ValueError, match=r"fedlc\.tau=-1 is out of range"):
        FedLC(start, -1)
    with pytest.raises(ValueError, match="corrections=fedlc needs a data set with labels"):
        FedLC(replace(start, task=LeastSquares()))


def test_a_loss_of_the_users_own_is_not_replaced_without_a_word() -> None:
    class Focal(Classification):
        pass

    with pytest.raises(ValueError, match="corrections=fedlc replaces the cross-entropy"):
        FedLC(replace(start_of(perceptron()), task=Focal()))
