"""pFedMe: a round and an evaluation by hand, and its reduction; tests/agreement/ has it beside plain torch."""

import pytest

from clients import PFedMe
from helpers.one_node import OneNode
from helpers.plain_loop import examples, perceptron, seeded, train


def test_a_round_and_an_evaluation_by_hand() -> None:
    """F = (1 - a)^2 / 2, lambda = 2, two inner steps of 0.1, two local steps of 0.1.

    From w = 0: theta = 0.1, 0.17, and w = 0.2 * 0.17 = 0.034; theta = 0.1306, 0.19822, and
    w = 0.034 + 0.2 * 0.16422. At 0.5 the node is judged by theta = 0.55, 0.585.
    """
    node = OneNode({"personal": PFedMe(2.0, 2, 0.1), "local_epochs": 2}, bias=False)
    assert node.trained(0.0, 1) == pytest.approx({"weight": 0.066844})
    assert node.loss(0.5) == pytest.approx(0.415**2)


def test_one_inner_step_of_one_over_lambda_is_fedavg() -> None:
    plain, same, other = (seeded(perceptron) for _ in range(3))
    settings = {"batch_size": 16, "local_epochs": 2}
    metrics = train(plain, examples(), **settings)
    # powers of two: 4 (w - (w - g / 4)) loses w's last bits alone
    reduced = train(same, examples(), **settings, personal=PFedMe(4.0, 1, 0.25))
    for a, b in zip(plain.parameters(), same.parameters(), strict=True):
        assert (a - b).abs().max() < 1e-6
    assert reduced == pytest.approx(metrics, rel=1e-6)
    train(other, examples(), **settings, personal=PFedMe(4.0, 5, 0.25))
    assert (plain[0].weight - other[0].weight).abs().max() > 1e-3


def test_nothing_of_an_evaluation_stays() -> None:
    node = OneNode({"personal": PFedMe(2.0, 2, 0.1)}, bias=False)
    first = node.trained(0.0, 1)
    node.loss(0.7)
    assert node.trained(0.0, 1) == first
