"""Our SCAFFOLD, FedProx, FedSAM, FedLC and FedRS beside fluke's, over whole rounds of a small problem.

Compared: the model, the server's variate c and every node's c_k after each of eight rounds, with all
nodes and with two of five (fluke is told which ones ours drew); fluke's servers, clients and channel do
the work, and nothing of ours. Tolerance: 1e-12 in float64; both take the same steps in torch, and fluke
averages models where ours averages differences. 1e-10 for FedSAM: fluke adds 1e-12 to the gradient's norm.

Where the definitions differ:
* fluke weights nodes by their examples unless told not to (``weighted=False``); Algorithm 1 has equal
  weights.
* fluke has option 2 alone, and divides by steps * lr whatever the optimiser. Ours divides by what the
  momentum makes of the steps, so that after one round ours is fluke's c_k times steps / sum of the
  gradients' weights. From then on fluke keeps the optimiser's momentum from round to round, ours starts
  afresh by default.
* FedLC: fluke counts a missing label as 1e-8 examples, a margin of 100; ours leaves it out, the limit. At
  tau = 1 these are equal in float64: exp(-100) is below its rounding.
* FedLC: fluke's margins are of float32, hence 1e-7.
* FedSAM: fluke 0.8.1 leaves the second gradient in place, so that the next step adds to it; here it starts
  from none, as Algorithm 1 has it.
* FedRS: fluke counts a label of up to two examples as missing unless told ``count_as_missing=0``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from clients import FedLC, FedRS, FedSAM
from clients.training import CorrectionFactory
from helpers.peers.random_updates import close
from helpers.peers.small_problem import NODES, RATE, STEPS
from helpers.peers.small_rounds import Vectors, compare, make, ours, vector
from strategies import FedAvg, FedProx, Scaffold, Uniform

pytest.importorskip("fluke", reason="fluke-fl is not installed: scripts/test-peers")
from fluke.algorithms.fedlc import FedLCClient  # type: ignore[import-not-vectors]
from fluke.algorithms.fedprox import FedProxClient  # type: ignore[import-not-vectors]
from fluke.algorithms.fedrs import FedRSClient  # type: ignore[import-not-vectors]
from fluke.algorithms.fedsam import FedSAMClient, SAMOptimizer  # type: ignore[import-not-vectors]
from fluke.algorithms.scaffold import SCAFFOLDClient, SCAFFOLDServer  # type: ignore[import-not-vectors]
from fluke.client import Client  # type: ignore[import-not-vectors]
from fluke.server import Server  # type: ignore[import-not-vectors]

from helpers.peers.fluke_rounds import make_clients, run_fluke

MU = 0.8


class FromNoGradient(SAMOptimizer):  # type: ignore[misc]
    """fluke's optimiser, which starts each step without the gradient of the last one."""

    def step(self, closure: Callable[[], Any]) -> float:
        self.zero_grad()
        return float(super().step(closure))


def theirs(
    server_of: type[Server],
    client_of: type[Client],
    sampled: list[list[int]],
    momentum: float = 0.0,
    optimizer: str | type = "SGD",
    **more: Any,
) -> list[Vectors]:
    """Do the same by fluke's server and clients."""
    clients = make_clients(client_of, {"name": optimizer, "lr": RATE, "momentum": momentum}, **more)
    return run_fluke(server_of(make(), None, clients, weighted=False), clients, sampled, look)


def look(server: Server, clients: list[Client]) -> Vectors:
    """Return the server's model, and SCAFFOLD's variates."""
    vectors = {"model": vector(list(server.model.parameters()))}
    if isinstance(server, SCAFFOLDServer):
        vectors["server"] = vector(list(server.control.values()))
        for client in clients:
            if client.control is not None:
                vectors[f"node {client.index}"] = vector(list(client.control.values()))
    return vectors


@pytest.mark.parametrize("nodes_per_round", [None, 2], ids=["all nodes", "two of five"])
def test_scaffold_variate_by_variate(nodes_per_round: int | None) -> None:
    actual, sampled = ours(Scaffold(num_nodes=NODES, nodes_per_round=nodes_per_round))
    assert nodes_per_round is None or len({tuple(chosen) for chosen in sampled}) > 2
    compare(actual, theirs(SCAFFOLDServer, SCAFFOLDClient, sampled), 1e-12)
    assert len(actual[-1]) == 2 + NODES
    plain, _ = ours(FedAvg(weighting=Uniform(), num_nodes=NODES, nodes_per_round=nodes_per_round))
    assert np.abs(actual[-1]["model"] - plain[-1]["model"]).max() > 0.01  # the variates matter


def test_momentum_divides_by_the_weight_of_the_gradients() -> None:
    momentum = 0.6
    actual, sampled = ours(Scaffold(num_nodes=NODES), momentum)
    expected = theirs(SCAFFOLDServer, SCAFFOLDClient, sampled[:1], momentum)[0]
    weight = sum(momentum**later for step in range(STEPS) for later in range(STEPS - step))
    close(actual[0]["model"], expected["model"], rtol=1e-12, atol=1e-12)
    for name in set(expected) - {"model"}:
        close(actual[0][name], expected[name] * STEPS / weight, rtol=1e-12, atol=1e-12)
    assert weight > 1.5 * STEPS


@pytest.mark.parametrize("nodes_per_round", [None, 2], ids=["all nodes", "two of five"])
def test_fedprox(nodes_per_round: int | None) -> None:
    strategy = FedProx(mu=MU, weighting=Uniform(), num_nodes=NODES, nodes_per_round=nodes_per_round)
    actual, sampled = ours(strategy)
    compare(actual, theirs(Server, FedProxClient, sampled, mu=MU), 1e-12)


@pytest.mark.parametrize(
    ("correction", "client_of", "more", "tolerance"),
    [
        (partial(FedSAM, rho=0.3), FedSAMClient, {"rho": 0.3, "optimizer": FromNoGradient}, 1e-10),
        (partial(FedLC, tau=1.0), FedLCClient, {"tau": 1.0}, 1e-7),
        (partial(FedRS, alpha=0.5), FedRSClient, {"alpha": 0.5, "count_as_missing": 0}, 1e-12),
    ],
    ids=["FedSAM", "FedLC", "FedRS"],
)
def test_losses_and_gradients_of_nodes(
    correction: CorrectionFactory, client_of: type[Client], more: dict[str, Any], tolerance: float
) -> None:
    strategy = FedAvg(weighting=Uniform(), num_nodes=NODES, nodes_per_round=2)
    actual, sampled = ours(strategy, correction=correction)
    compare(actual, theirs(Server, client_of, sampled, **more), tolerance)
    plain, _ = ours(FedAvg(weighting=Uniform(), num_nodes=NODES, nodes_per_round=2))
    assert np.abs(actual[-1]["model"] - plain[-1]["model"]).max() > 0.01  # the method matters
