"""FedRS's loss: by hand, its reductions, and what it refuses; tests/agreement/ has it beside plain torch."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from clients import Classification, Examples, FedRS, LeastSquares
from helpers.plain_loop import assert_equal, examples, perceptron, seeded, start_of, train


def test_the_loss_by_hand() -> None:
    """Of the logits (1, 2) and label 0, the only one that the node has, it is log(1 + e^(2 / 4 - 1))."""
    own = Examples(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 2]))
    start = replace(start_of(perceptron()), examples=own)
    outputs = torch.tensor([[1.0, 2.0]])
    loss = FedRS(start, alpha=0.25).replace_loss(nn.Identity(), outputs, outputs, torch.tensor([0]))
    assert loss.item() == pytest.approx(math.log1p(math.exp(-0.5)))


@pytest.mark.parametrize("alpha", [1.0, 0.3], ids=["alpha = 1", "all labels"])
def test_a_node_with_all_labels_or_without_a_factor_takes_fedavgs_steps(alpha: float) -> None:
    plain, same = (seeded(perceptron) for _ in range(2))
    metrics = train(plain, examples(), batch_size=16)
    assert train(same, examples(), batch_size=16, corrections=[FedRS(start_of(same), alpha)]) == metrics
    assert_equal(plain, same)


def test_a_node_without_a_label_does_not() -> None:
    data = examples()
    some = replace(data, index=data.index[data.targets[data.index] > 0])
    plain, other = (seeded(perceptron) for _ in range(2))
    train(plain, some)
    train(other, some, corrections=[FedRS(replace(start_of(other), examples=some), 0.3)])
    assert not plain[0].weight.equal(other[0].weight)


def test_what_it_cannot_work_with_is_refused() -> None:
    start = start_of(perceptron())
    with pytest.raises(ValueError, match=r"fedrs\.alpha=1.5 is out of range"):
        FedRS(start, 1.5)
    with pytest.raises(ValueError, match="corrections=fedrs needs a data set with labels"):
        FedRS(replace(start, task=LeastSquares()))


def test_a_loss_of_the_users_own_is_not_replaced_without_a_word() -> None:
    class Focal(Classification):
        pass

    with pytest.raises(ValueError, match="corrections=fedrs replaces the cross-entropy"):
        FedRS(replace(start_of(perceptron()), task=Focal()))
