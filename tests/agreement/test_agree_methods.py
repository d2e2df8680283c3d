"""What methods do to the gradient on the node: each in every way beside its own lines in the plain loop."""

import pytest

from helpers.agreement.plain_methods import (
    Alternating,
    FedDyn,
)
from helpers.agreement.settings import METHODS, MLP
from helpers.agreement.tolerance import TO_THE_BIT, hold, moved
from helpers.agreement.ways import EAGER, WAYS, Way, compare, ours


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str, way: Way) -> None:
    overrides, kind, batches, tolerance = METHODS[method]
    compare(overrides, way, kind, batches=batches, one_by_one=tolerance, rounds=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("first_order", ["true", "false"])
def test_the_gradient_after_a_step_is_the_same_in_every_way(first_order: str, way: Way) -> None:
    """tests/clients/test_per_fedavg.py has it beside plain torch."""
    chosen = f"personal=per_fedavg client.personal.first_order={first_order} client.personal.alpha=0.1"
    overrides = f"{MLP} {chosen}"
    actual, plain = ours(overrides, way, rounds=3), ours(overrides, EAGER, rounds=3)
    assert not actual.batched
    assert moved(plain.rounds, plain.start)
    hold(actual, plain.rounds, TO_THE_BIT)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_users_own_client(way: Way) -> None:
    """FedDyn, written as a subclass of LocalTraining: what it does must not be passed over."""
    compare(f"{MLP} client=feddyn", way, FedDyn, batches=None, rounds=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_client_that_trains_one_layer_after_another(way: Way) -> None:
    """The layers are of one shape: the gradient of the one must not go to the other."""
    compare(
        "model=twins client=alternating client.local_epochs=2", way, Alternating, batches=None, rounds=3
    )
