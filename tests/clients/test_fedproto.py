"""FedProto on the node: its term and its prototypes by hand, and what it refuses."""

from functools import partial

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import nn
from torch.optim import SGD

from clients import Classification, Examples, LeastSquares, LocalTraining, PrototypeDistance, RoundStart
from clients.tasks import Task
from helpers.plain_loop import assert_equal, examples, perceptron, seeded
from strategies.shared import protocol


def start_of(
    model: nn.Module,
    strength: float,
    prototypes: tuple[list[list[float]], list[int]] | None,
    data: Examples,
) -> RoundStart:
    config = ConfigRecord({protocol.PROTOTYPES: True, protocol.PROTOTYPE_WEIGHT: strength})
    content = RecordDict({protocol.CONFIG: config})
    if prototypes is not None:
        means, counts = torch.tensor(prototypes[0]), torch.tensor(prototypes[1])
        content[protocol.PROTOTYPES] = ArrayRecord({"means": means, "counts": counts})
    return RoundStart(
        model, data, Classification(), partial(SGD, lr=0.1), 1, None, content, RecordDict(), 0
    )


def doubling() -> nn.Module:
    """Return a model whose representation of x is 2 x, for two classes."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.copy_(2 * torch.eye(2))
    return model


INPUTS, TARGETS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]), torch.tensor([0, 0, 1])


def test_the_term_by_hand() -> None:
    """z = (2, 0), (0, 2), (4, 4); class 0 has (1, 1), class 1 no prototype: 0.5 (1 + 1 + 1 + 1) / 6."""
    model, data = doubling(), Examples(INPUTS, TARGETS, torch.arange(3))
    term = PrototypeDistance(start_of(model, 0.5, ([[1.0, 1.0], [9.0, 9.0]], [5, 0]), data))
    loss = term.loss_term(model, INPUTS, model(INPUTS), TARGETS)
    assert loss.item() == pytest.approx(0.5 * 4 / 6)
    loss.backward()
    assert model[0].weight.grad is not None  # by z = W x: 0.5 / 6 * 2 * sum (z - C) x^T
    torch.testing.assert_close(model[0].weight.grad, torch.tensor([[1.0, -1.0], [-1.0, 1.0]]) / 6)


def test_the_prototypes_by_hand() -> None:
    """Class 0: ((2, 0) + (0, 2)) / 2; class 1: (4, 4)."""
    model, data = doubling(), Examples(INPUTS, TARGETS, torch.tensor([2, 0, 1]))
    sent = PrototypeDistance(start_of(model, 0.5, None, data)).on_round_end([], {})[protocol.PROTOTYPES]
    assert sent["means"].numpy().tolist() == [[1.0, 1.0], [4.0, 4.0]]
    assert sent["counts"].numpy().tolist() == [2, 1]
    only = Examples(INPUTS, TARGETS, torch.tensor([2]))
    sent = PrototypeDistance(start_of(model, 0.5, None, only)).on_round_end([], {})[protocol.PROTOTYPES]
    assert sent["means"].numpy().tolist() == [[0.0, 0.0], [4.0, 4.0]]
    assert sent["counts"].numpy().tolist() == [0, 1]
    assert not any(layer._forward_pre_hooks for layer in model.modules())


def trained(strength: float, prototypes: tuple[list[list[float]], list[int]] | None) -> nn.Module:
    model = seeded(perceptron)
    terms = [PrototypeDistance(start_of(model, strength, prototypes, examples()))]
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), local_epochs=2, batch_size=16)
    training(model, examples(), Classification(), server_round=1, seed=3, corrections=terms)
    return model


def test_without_strength_or_prototypes_it_is_plain_training() -> None:
    plain = seeded(perceptron)
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), local_epochs=2, batch_size=16)
    training(plain, examples(), Classification(), server_round=1, seed=3)
    ones = [[1.0] * 8] * 3, [4, 4, 4]
    assert_equal(trained(0.0, ones), plain)
    assert_equal(trained(5.0, None), plain)
    assert not torch.equal(trained(5.0, ones)[0].weight, plain[0].weight)


class Reversed(nn.Module):
    """Registers its last layer first."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(2, 2)
        self.embedding = nn.Embedding(3, 2)


@pytest.mark.parametrize(
    ("model", "task", "line"),
    [
        (nn.Conv2d(1, 1, 1), Classification(), "needs a model with a linear layer"),
        (Reversed(), Classification(), "whose last matrix is the weight of its last linear layer"),
        (
            doubling(),
            LeastSquares(),
            "needs a data set with labels.*is LeastSquares: choose another strategy",
        ),
    ],
)
def test_what_has_no_representation_or_no_labels_is_refused(
    model: nn.Module, task: Task, line: str
) -> None:
    with pytest.raises(ValueError, match=line):
        PrototypeDistance.check_model(model, task)
