"""FedBABU: by hand, its reduction, and what stays; tests/agreement/ has it beside plain torch."""

import copy
from pathlib import Path

import pytest
import torch
from flwr.app import RecordDict
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from clients import FedBABU
from helpers.one_node import OneNode
from helpers.plain_loop import examples, perceptron, seeded, start_of, train
from helpers.runs import curve, played


def test_a_round_and_an_evaluation_by_hand() -> None:
    """With the weight of y = a x + b as its head a node trains b alone: 0.1 (1 - 0.5) from (0.5, 0).

    Judged at (0.4, 0) it moves both by 0.25 * 0.6, then by 0.25 * 0.3: 1 - 0.4 - 2 * 0.225 is left.
    """
    node = OneNode({"personal": FedBABU(2, 0.25, head=["weight"])})
    assert node.trained(0.5, 1) == pytest.approx({"weight": 0.5, "bias": 0.05})
    assert node.loss(0.4) == pytest.approx(0.15**2)


def test_the_head_stays_and_learns_again_afterwards() -> None:
    plain, model = (seeded(perceptron) for _ in range(2))
    head = copy.deepcopy(model[2].state_dict())
    train(model, examples(), batch_size=16, personal=FedBABU())
    train(plain, examples(), batch_size=16)
    assert all(torch.equal(head[name], value) for name, value in model[2].state_dict().items())
    assert not torch.equal(model[0].weight, plain[0].weight)
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("epochs", [0, 2])
def test_fine_tuning_beside_plain_torch(epochs: int) -> None:
    """The examples in their order, 16 at a time, the last 2; no epoch leaves the server's model."""
    model, plain, data = seeded(perceptron), seeded(perceptron), examples()
    start = start_of(model)
    FedBABU(epochs, 0.2).personalise(model, data, start.task, 16, RecordDict())
    inputs, targets = data.batch(slice(None), torch.device("cpu"))
    optimizer = SGD(plain.parameters(), lr=0.2)
    for _ in range(epochs):
        for rows in torch.arange(50).split(16):
            optimizer.zero_grad()
            cross_entropy(plain(inputs[rows]), targets[rows]).backward()
            optimizer.step()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("head", [[], ["*"]], ids=["no parameter", "every parameter"])
def test_a_head_that_is_none_is_refused(head: list[str]) -> None:
    with pytest.raises(ValueError, match=r"client\.personal\.head=.* parameter of the model"):
        FedBABU(head=head).check(nn.Linear(2, 2), [])


def test_a_run_without_fine_tuning_judges_the_servers_model(tmp_path: Path) -> None:
    run = "dataset=digits num_nodes=3 rounds=2 node_test_fraction=0.2 personal=fedbabu"
    none = played(f"{run} client.personal.fine_tune_epochs=0", tmp_path / "none")
    some = played(f"{run} client.personal.fine_tune_epochs=1", tmp_path / "some")
    assert curve(none, "test", "loss") == curve(some, "test", "loss")
    assert curve(some, "node-test", "loss")[-1] < curve(none, "node-test", "loss")[-1]
