"""Rounds of the small problem by fluke's servers and clients; fluke has to be installed."""

from collections.abc import Callable, Iterable
from typing import Any

from fluke.client import Client  # type: ignore[import-not-found]
from fluke.config import OptimizerConfigurator  # type: ignore[import-not-found]
from fluke.data import FastDataLoader  # type: ignore[import-not-found]
from fluke.nets import EncoderHeadNet  # type: ignore[import-not-found]
from fluke.server import Server  # type: ignore[import-not-found]
from torch import Tensor, nn

from helpers.peers.small_problem import NODES, STEPS, data
from helpers.peers.small_rounds import Vectors, make


def headed() -> EncoderHeadNet:
    """Return the small problem's model as fluke divides one: its last layer is the head."""
    *encoder, head = make()  # type: ignore[misc]
    return EncoderHeadNet(nn.Sequential(*encoder), head)


def make_clients(
    client_of: type[Client],
    optimizer: dict[str, Any],
    data_of: Callable[[int], tuple[Tensor, Tensor]] = data,
    own_models: bool = False,
    **more: Any,
) -> list[Client]:
    """Return a client for each node, as many full steps a round as ours take.

    With ``own_models`` each is handed a model that begins as the server's does.
    """
    more = {"local_epochs": STEPS} | more
    return [
        client_of(
            index=k,
            train_set=FastDataLoader(*data_of(k), num_labels=3, batch_size=0),
            test_set=None,
            optimizer_cfg=OptimizerConfigurator(optimizer),
            loss_fn=nn.CrossEntropyLoss(),
            **({"model": headed()} if own_models else {}),
            **more,
        )
        for k in range(NODES)
    ]


def run_fluke(
    server: Server,
    clients: list[Client],
    sampled: Iterable[list[int]],
    look: Callable[[Server, list[Client]], Vectors],
) -> list[Vectors]:
    """Play rounds in the order of fluke's ``CentralizedFL.run``; return what ``look`` sees after each."""
    for client in clients:
        client.set_channel(server.channel)
    history = []
    for server_round, chosen in enumerate(sampled, start=1):
        eligible = [clients[k] for k in chosen]
        server.broadcast_model(eligible)
        for client in eligible:
            client.local_update(server_round)
        server.aggregate(eligible, server.receive_client_models(eligible, state_dict=False))
        history.append(look(server, clients))
    return history
