"""Our MOON, FedProto and personal methods beside fluke's, over whole rounds of a small problem.

Compared after each of eight rounds: the server's model and what nodes keep; for FedBABU also the model that a
node fine-tunes. fluke's servers, clients and channel do the work. Tolerance: 1e-12 in float64, but for
FedProto (1e-6: our messages carry prototypes in float32).

Where fluke 0.8.1 and the paper differ, and what is done about it here:
* Ditto: v_k begins at the first model in fluke and the paper, at the model that a node is sent first in ours.
  With all nodes in each round these are one.
* FedBABU: fluke fine-tunes what a node trained last, Algorithm 1 the server's model; here each client has
  received that before.
* FedProto: fluke's prototypes are means over all steps of a round, of a model that is still moving, as in the
  authors' code (over the last epoch); ours are taken when the model has been trained, and so is fluke's client here.
  fluke's server takes the plain mean over nodes, as the authors' code does; ours counts examples, as equation 6
  does; here every node has as many examples of each of its labels.
* pFedMe: fluke's client hands its optimiser the model itself as w, so that lambda (theta - w) is 0, and sends theta
  in place of w. Its optimiser and its server are Algorithm 1's: they are taken, and the loop is written here.
* APFL: fluke's client takes the gradient at a copy of the mixture, so that no v_k ever gets a step, and then
  replaces v_k by the mixture: nothing to compare with; ``test_papers.py`` has a loop.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import nn

from clients import Classification, Ditto, Examples, FedBABU, FedRep, Moon, PFedMe
from helpers.peers.random_updates import close
from helpers.peers.small_problem import NODES, RATE, STEPS, balanced, data
from helpers.peers.small_rounds import Vectors, compare, make, ours, vector
from strategies import Constant, FedAvg, FedProto, Uniform
from strategies.fedproto import PrototypeExchange

pytest.importorskip("fluke", reason="fluke-fl is not installed: scripts/test-peers")
from fluke.algorithms.apfl import APFLClient, APFLServer  # type: ignore[import-not-found]
from fluke.algorithms.ditto import DittoClient  # type: ignore[import-not-found]
from fluke.algorithms.fedbabu import FedBABUClient, FedBABUServer  # type: ignore[import-not-found]
from fluke.algorithms.fedper import FedPerClient  # type: ignore[import-not-found]
from fluke.algorithms.fedproto import FedProtoClient, FedProtoServer  # type: ignore[import-not-found]
from fluke.algorithms.fedrep import FedRepClient  # type: ignore[import-not-found]
from fluke.algorithms.lg_fedavg import LGFedAVGClient  # type: ignore[import-not-found]
from fluke.algorithms.moon import MOONClient  # type: ignore[import-not-found]
from fluke.algorithms.pfedme import PFedMeClient, PFedMeOptimizer, PFedMeServer  # type: ignore[import-not-found]
from fluke.client import Client  # type: ignore[import-not-found]
from fluke.server import Server  # type: ignore[import-not-found]

from helpers.peers.fluke_rounds import headed, make_clients, run_fluke

SGD = {"name": "SGD", "lr": RATE}
HEAD = 2  # tensors, the last of the model


def uniform(nodes_per_round: int | None = None, eta: float = 1.0) -> FedAvg:
    return FedAvg(
        weighting=Uniform(), step_size=Constant(eta), num_nodes=NODES, nodes_per_round=nodes_per_round
    )


def look(server: Server, clients: list[Client]) -> Vectors:
    return {"model": vector(list(server.model.parameters()))}


def assert_unlike_fedavg(actual: list[Vectors], **more: Any) -> None:
    plain, _ = ours(uniform(), **more)
    assert np.abs(actual[-1]["model"] - plain[-1]["model"]).max() > 0.01


@pytest.mark.parametrize("nodes_per_round", [None, 2], ids=["all nodes", "two of five"])
def test_moon(nodes_per_round: int | None) -> None:
    actual, sampled = ours(uniform(nodes_per_round), correction=partial(Moon, mu=2.0, temperature=0.4))
    clients = make_clients(MOONClient, SGD, mu=2.0, tau=0.4)
    compare(actual, run_fluke(Server(headed(), None, clients), clients, sampled, look), 1e-12)
    if nodes_per_round is None:
        assert_unlike_fedavg(actual)


def test_ditto() -> None:
    actual, sampled = ours(uniform(), personal=Ditto(strength=0.7))

    def look_at_own(server: Server, clients: list[Client]) -> Vectors:
        own = {f"node {c.index}": vector(list(c.personalized_model.parameters())) for c in clients}
        return look(server, clients) | own

    clients = make_clients(DittoClient, SGD, own_models=True, tau=STEPS, lam=0.7)
    compare(actual, run_fluke(Server(headed(), None, clients), clients, sampled, look_at_own), 1e-12)
    assert np.abs(actual[-1]["node 0"] - actual[-1]["model"]).max() > 0.01


@pytest.mark.parametrize("nodes_per_round", [None, 2], ids=["all nodes", "two of five"])
@pytest.mark.parametrize("method", ["FedPer", "FedRep", "LG-FedAvg"])
def test_layers_that_stay_at_nodes(method: str, nodes_per_round: int | None) -> None:
    shares_head, first = method == "LG-FedAvg", list(make().parameters())
    head_epochs, settings = 3, dict[str, Any](private=["body" if shares_head else "last"])
    if method == "FedRep":
        settings["personal"] = FedRep(head_epochs=head_epochs)
    actual, sampled = ours(uniform(nodes_per_round), **settings)

    def look_at_own(server: Server, clients: list[Client]) -> Vectors:
        shared = list(server.model.parameters())
        whole = [*first[:-HEAD], *shared] if shares_head else [*shared, *first[-HEAD:]]
        own = {
            f"node {c.index}": vector(list(c.model.get_local().parameters()))
            for c in clients
            if c._last_round
        }
        return {"model": vector(whole)} | own

    kinds = {"FedPer": FedPerClient, "FedRep": FedRepClient, "LG-FedAvg": LGFedAVGClient}
    more = {"tau": STEPS, "local_epochs": head_epochs} if method == "FedRep" else {}
    clients = make_clients(kinds[method], SGD, own_models=True, **more)
    server = Server(headed().head if shares_head else headed().encoder, None, clients)
    compare(actual, run_fluke(server, clients, sampled, look_at_own), 1e-12)
    assert_unlike_fedavg(actual)


def test_fedbabu_and_its_fine_tuning() -> None:
    method, head = FedBABU(fine_tune_epochs=3, rate=RATE), list(make().parameters())[-HEAD:]
    actual, sampled = ours(uniform(), personal=method)

    def look_at_whole(server: Server, clients: list[Client]) -> Vectors:
        return {"model": vector([*server.model.parameters(), *head])}

    clients = make_clients(FedBABUClient, SGD, own_models=True, mode="full", fine_tuning_epochs=3)
    server = FedBABUServer(headed().encoder, None, clients)
    compare(actual, run_fluke(server, clients, sampled, look_at_whole), 1e-12)
    server.broadcast_model(clients)
    for k, client in enumerate(clients):
        client.receive_model()
        client.fine_tune()
        own, (inputs, labels) = make(), data(k)
        nn.utils.vector_to_parameters(torch.tensor(actual[-1]["model"]), own.parameters())
        examples = Examples(inputs, labels, torch.arange(len(labels)))
        method.personalise(own, examples, Classification(), None, RecordDict())
        tuned = vector(list(own.parameters()))
        close(tuned, vector(list(client.model.parameters())), rtol=1e-12, atol=1e-12)
        assert np.abs(tuned - actual[-1]["model"]).max() > 0.01


class Envelope(PFedMeClient):  # type: ignore[misc]
    """fluke's client with Algorithm 1's loop around fluke's optimiser."""

    def fit(self, override_local_epochs: int = 0) -> float:
        if self.optimizer is None:
            self.optimizer, self.scheduler = self._optimizer_cfg(self.model)
        w, strength = list(self.model.parameters()), self.optimizer.defaults["lamda"]
        for _ in range(STEPS):
            anchor = [p.detach().clone() for p in w]
            for _ in range(self.hyper_params.k):
                self.optimizer.zero_grad()
                (inputs, labels), *_ = self.train_set
                self.hyper_params.loss_fn(self.model(inputs), labels).backward()
                self.optimizer.step(anchor)
            for p, start in zip(w, anchor, strict=True):
                p.data = start - RATE * strength * (start - p.data)
        return 0.0


@pytest.mark.parametrize("nodes_per_round", [None, 2], ids=["all nodes", "two of five"])
def test_pfedme(nodes_per_round: int | None) -> None:
    strength, inner_rate, inner_steps, beta = 2.5, 0.15, 3, 0.6
    method = PFedMe(strength=strength, inner_steps=inner_steps, inner_rate=inner_rate)
    actual, sampled = ours(uniform(nodes_per_round, beta), personal=method)
    optimizer = {"name": PFedMeOptimizer, "lr": inner_rate, "lamda": strength, "mu": 0.0}
    clients = make_clients(Envelope, optimizer, k=inner_steps)
    compare(
        actual, run_fluke(PFedMeServer(make(), None, clients, beta=beta), clients, sampled, look), 1e-12
    )
    assert_unlike_fedavg(actual)


class AtTheEnd(FedProtoClient):  # type: ignore[misc]
    """fluke's client, whose prototypes are those of the model that it has trained."""

    def fit(self, override_local_epochs: int = 0) -> float:
        loss = float(super().fit(override_local_epochs))
        (inputs, labels), *_ = self.train_set
        z = self.model.encoder(inputs).detach()
        self._update_protos({int(c): list(z[labels == c]) for c in labels.unique()})
        return loss


def test_fedproto() -> None:
    strategy = FedProto(inner=PrototypeExchange(num_nodes=NODES), strength=0.9)
    _, sampled = ours(strategy, data_of=balanced)  # type: ignore[arg-type]
    clients = make_clients(AtTheEnd, SGD, data_of=balanced, own_models=True, n_protos=3, lam=0.9)
    server = FedProtoServer(None, None, clients, n_protos=3)
    run_fluke(server, clients, sampled, lambda *_: {})
    assert strategy._means is not None
    close(strategy._means, torch.stack(server.prototypes), rtol=1e-6, atol=1e-6)
    for k, client in enumerate(clients):
        own = vector([torch.from_numpy(w.numpy()) for w in strategy._models[f"node{k}"].values()])
        close(own, vector(list(client.model.parameters())), rtol=1e-6, atol=1e-6)


def test_flukes_apfl_moves_no_model_of_its_own() -> None:
    clients = make_clients(APFLClient, SGD, own_models=True, lam=1.0)
    run_fluke(APFLServer(headed(), None, clients, tau=1), clients, [[*range(NODES)]], look)
    for client in clients:  # with lambda = 1 the mixture is v_k, which would be trained alone
        close(vector(list(client.personalized_model.parameters())), vector(list(make().parameters())), 0)
