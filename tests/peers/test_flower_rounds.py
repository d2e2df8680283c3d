"""Our FedAvg, FedAvgM and FedProx beside Flower's, over whole rounds by Flower's own ``Strategy.start``.

Compared: every model of five rounds with five nodes of unequal size. On the other side nothing is ours
but the grid: Flower's strategy, and a ClientApp that anyone would write. Tolerance: 1e-12 in float64;
Flower adds up weighted models in the order of the replies, ours subtracts weighted differences, and
twenty steps of training magnify the roundings a little; 1e-14 was seen.

Where the definitions differ:
* Buffers. Both average running statistics. Flower's FedAvgM applies the server's momentum to them too,
  ours never; the models' parameters agree all the same. With a = (1 - 0.3)^steps a round takes r to a r +
  c, so that c is known from our run, and Flower's buffers are predicted from it.
* Counters. Ours rounds the average of integers, Flower's leaves it a float64; where the order of the
  replies makes it 7.999..., the nodes cut it to 7, so that Flower's may lose one in each round.
* No nodes are left out in either: the two draw them differently.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy
from torch import nn

from baselines.runtimes.inline import InlineGrid
from helpers.peers.random_updates import Model, close
from helpers.peers.small_problem import NODES, STEPS, model, our_app, plain_app
from strategies import Constant, FedAvg, FedProx, Momentum

ROUNDS, ETA, BETA, MU = 5, 0.7, 0.6, 0.8
STOCK = {"fraction_evaluate": 0.0, "min_train_nodes": NODES, "min_available_nodes": NODES}
OURS = {"num_nodes": NODES, "federated_evaluation": False}
TRACKED = "1.num_batches_tracked"
STATISTICS = ("1.running_mean", "1.running_var")


def rounds(strategy: Strategy, app: ClientApp, make: Callable[[], nn.Module]) -> list[Model]:
    """Return the initial model and that after each round, as plain arrays."""
    history: list[Model] = []

    def note(server_round: int, arrays: ArrayRecord) -> None:
        history.append({name: array.numpy().copy() for name, array in arrays.items()})

    first = ArrayRecord(make().state_dict())
    strategy.start(InlineGrid(app, NODES), first, num_rounds=ROUNDS, evaluate_fn=note)
    assert len(history) == ROUNDS + 1
    assert np.abs(history[-1]["0.weight"] - history[0]["0.weight"]).max() > 0.1
    return history


def compare(actual: list[Model], expected: list[Model], names: list[str] | None = None) -> None:
    for name in names or actual[0]:
        close([w[name] for w in actual], [w[name] for w in expected], rtol=1e-12, atol=1e-12)


PAIRS: dict[str, tuple[Callable[[], Strategy], Callable[[], Strategy]]] = {
    "fedavg": (lambda: FedAvg(**OURS), lambda: flower.FedAvg(**STOCK)),  # type: ignore[arg-type]
    "fedavgm": (
        lambda: FedAvg(server_optimizer=Momentum(BETA), step_size=Constant(ETA), **OURS),  # type: ignore[arg-type]
        lambda: flower.FedAvgM(server_learning_rate=ETA, server_momentum=BETA, **STOCK),  # type: ignore[arg-type]
    ),
    "server learning rate": (
        lambda: FedAvg(step_size=Constant(ETA), **OURS),  # type: ignore[arg-type]
        lambda: flower.FedAvgM(server_learning_rate=ETA, **STOCK),  # type: ignore[arg-type]
    ),
    "fedprox": (
        lambda: FedProx(mu=MU, **OURS),  # type: ignore[arg-type]
        lambda: flower.FedProx(proximal_mu=MU, **STOCK),  # type: ignore[arg-type]
    ),
}
without_buffers = partial(model, norm=False)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("name", PAIRS)
def test_the_same_models_in_every_round(name: str, momentum: float) -> None:
    ours, theirs = PAIRS[name]
    actual = rounds(ours(), our_app(without_buffers, momentum), without_buffers)
    compare(actual, rounds(theirs(), plain_app(without_buffers, momentum), without_buffers))


@pytest.mark.parametrize("name", PAIRS)
def test_either_strategy_goes_with_either_client(name: str) -> None:
    ours, theirs = PAIRS[name]
    actual = rounds(ours(), plain_app(without_buffers), without_buffers)
    compare(actual, rounds(theirs(), our_app(without_buffers), without_buffers))


def test_fedprox_is_not_fedavg() -> None:
    """Else a mu that reaches nobody would pass for agreement."""
    app, make = our_app(without_buffers), without_buffers
    with_mu, without = rounds(PAIRS["fedprox"][1](), app, make), rounds(PAIRS["fedavg"][1](), app, make)
    assert np.abs(with_mu[-1]["0.weight"] - without[-1]["0.weight"]).max() > 0.01


def test_fedavg_averages_running_statistics_alike() -> None:
    actual = rounds(FedAvg(**OURS), our_app(model), model)  # type: ignore[arg-type]
    expected = rounds(flower.FedAvg(**STOCK), plain_app(model), model)  # type: ignore[arg-type]
    compare(actual, expected, [name for name in actual[0] if name != TRACKED])
    for t, (w, stock) in enumerate(zip(actual, expected, strict=True)):
        assert w[TRACKED].dtype == np.int64
        assert w[TRACKED] == STEPS * t
        assert STEPS * t - t <= stock[TRACKED] <= STEPS * t + 1e-9
    assert expected[-1][TRACKED].dtype == np.float64


def test_fedavgm_of_flower_gives_momentum_to_running_statistics_ours_does_not() -> None:
    ours, theirs = PAIRS["fedavgm"]
    actual = rounds(ours(), our_app(model), model)
    expected = rounds(theirs(), plain_app(model), model)
    compare(actual, expected, [name for name in actual[0] if name not in (TRACKED, *STATISTICS)])
    for name in STATISTICS:
        kept = (1 - 0.3) ** STEPS
        r, velocity = actual[0][name], np.zeros_like(actual[0][name])
        predicted = [r]
        for before, after in pairwise(actual):
            c = after[name] - kept * before[name]
            velocity = BETA * velocity + r - (kept * r + c)
            r = r - ETA * velocity
            predicted.append(r)
        close([w[name] for w in expected], predicted, rtol=1e-12, atol=1e-12)
        assert np.abs(expected[-1][name] - actual[-1][name]).max() > 0.01
