"""What methods do to the gradient on the node: each in every way beside its own lines in the plain loop."""

import pytest
from plain import Plain
from plain_methods import Alternating, FedDyn, FedProx, FedRep, InverseVariance, Scaffold, ScaffoldOption1
from tolerance import TO_THE_BIT, Tolerance, hold, moved
from ways import EAGER, WAYS, Way, compare, ours

MLP = "model=mlp model.hidden=8 client.local_epochs=2"
# Computed in another order: c_k - c + (w_t - w_k) / (steps lr), or a variance step by step. The last bit of
# a round's c or alpha is then in all that follows.
ORDER = Tolerance(of_values=1e-6, of_movement=1e-4)
METHODS: dict[str, tuple[str, type[Plain], bool, Tolerance]] = {
    "proximal": (f"{MLP} strategy=fedprox strategy.mu=0.5", FedProx, True, TO_THE_BIT),
    "proximal, clipped": (
        f"{MLP} strategy=fedprox strategy.mu=0.5 client.max_grad_norm=0.3",
        FedProx,
        True,
        TO_THE_BIT,
    ),
    "proximal, frozen": ("model=frozen strategy=fedprox strategy.mu=0.5", FedProx, True, TO_THE_BIT),
    "proximal, momentum, decayed": (
        f"{MLP} strategy=fedprox strategy.mu=0.5 client.optimizer.momentum=0.9 client.schedule.gamma=0.5",
        FedProx,
        True,
        TO_THE_BIT,
    ),
    "proximal, adam": (f"{MLP} strategy=fedprox strategy.mu=0.5 client=adam", FedProx, True, TO_THE_BIT),
    "control variates": (f"{MLP} strategy=scaffold", Scaffold, True, ORDER),
    "control variates, option 1": (
        f"{MLP} strategy=scaffold strategy.option=1 client.batch_size=null",
        ScaffoldOption1,
        True,
        ORDER,
    ),
    "gradient variance": (f"{MLP} weighting=inverse_variance", InverseVariance, True, ORDER),
    "head and body in turn": (
        f"{MLP} personal=fedrep client.personal.head_epochs=2 strategy=fedprox strategy.mu=0.5 "
        "client.optimizer.momentum=0.9",
        FedRep,
        False,
        TO_THE_BIT,
    ),
    "a model besides": (f"{MLP} personal=ditto", Plain, False, TO_THE_BIT),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str, way: Way) -> None:
    overrides, kind, batches, tolerance = METHODS[method]
    compare(overrides, way, kind, batches=batches, one_by_one=tolerance, rounds=3)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("first_order", ["true", "false"])
def test_the_gradient_after_a_step_is_the_same_in_every_way(first_order: str, way: Way) -> None:
    """tests/clients/test_per_fedavg.py has it beside plain torch."""
    chosen = f"personal=per_fedavg client.personal.first_order={first_order} client.personal.alpha=0.1"
    overrides = f"{MLP} {chosen}"
    found, plain = ours(overrides, way, rounds=3), ours(overrides, EAGER, rounds=3)
    assert not found.batched
    assert moved(plain.rounds, plain.start)
    hold(found, plain.rounds, TO_THE_BIT)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_users_own_client(way: Way) -> None:
    """FedDyn, written as a subclass of LocalTraining: what it does must not be passed over."""
    compare(f"{MLP} client=feddyn", way, FedDyn, batches=None, rounds=3)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_client_that_trains_one_layer_after_another(way: Way) -> None:
    """The layers are of one shape: the gradient of the one must not go to the other."""
    compare(
        "model=twins client=alternating client.local_epochs=2", way, Alternating, batches=None, rounds=3
    )
