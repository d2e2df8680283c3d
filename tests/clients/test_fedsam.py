"""FedSAM's step: by hand, its reduction, and what it refuses; tests/agreement/ has it beside plain torch."""

from functools import partial

import pytest

from clients import FedSAM
from helpers.one_node import OneNode
from helpers.plain_loop import assert_equal, examples, perceptron, seeded, start_of, train


def test_a_step_by_hand() -> None:
    """F = (1 - a - b)^2 / 2 at (0, 0): g = (-1, -1), and sqrt(2) / 4 uphill, at (-1/4, -1/4), it is 1.5 g."""
    node = OneNode({"corrections": {"fedsam": partial(FedSAM, rho=2**0.5 / 4)}})
    assert node.trained(0.0, 1) == pytest.approx({"weight": 0.15, "bias": 0.15})


def test_at_the_minimum_it_stays() -> None:
    node = OneNode({"corrections": {"fedsam": partial(FedSAM, rho=0.5)}}, bias=False)
    assert node.trained(1.0, 1) == {"weight": 1.0}


def test_without_a_distance_it_is_fedavg() -> None:
    plain, same, other = (seeded(perceptron) for _ in range(3))
    metrics = [train(plain, examples(), batch_size=16)]
    for model, rho in ((same, 0.0), (other, 0.5)):
        metrics.append(train(model, examples(), batch_size=16, corrections=[FedSAM(start_of(model), rho)]))
    assert_equal(plain, same)
    assert metrics[0] == metrics[1]
    assert not plain[0].weight.equal(other[0].weight)


@pytest.mark.parametrize("rho", [-0.1, float("inf")])
def test_a_distance_out_of_range_is_refused(rho: float) -> None:
    with pytest.raises(ValueError, match=r"fedsam\.rho=.* is out of range"):
        FedSAM(start_of(perceptron()), rho)
