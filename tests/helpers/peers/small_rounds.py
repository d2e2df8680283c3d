"""Rounds of the small problem by our strategies and nodes, variate by variate."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord

from baselines.runtimes.inline import InlineGrid
from clients.training import CorrectionFactory
from helpers.peers.random_updates import close
from helpers.peers.small_problem import NODES, model, our_app
from strategies import Scaffold
from strategies.core.pseudo_gradient import PseudoGradientStrategy

ROUNDS = 8
KEPT = {"apfl", "control", "ditto", "private"}  # ArrayRecords of a node's state that are compared
Vectors = dict[str, np.ndarray]  # by "model", "server" and node
make = partial(model, norm=False)


def vector(tensors: Sequence[torch.Tensor]) -> np.ndarray:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).numpy().copy()


def ours(
    strategy: PseudoGradientStrategy,
    momentum: float = 0.0,
    correction: CorrectionFactory | None = None,
    **more: Any,
) -> tuple[list[Vectors], list[list[int]]]:
    """Return what there is after each round, and who took part; ``more`` goes to :func:`our_app`."""
    grid = InlineGrid(our_app(make, momentum, correction, **more), NODES)
    arrays = ArrayRecord(make().state_dict())
    history, rounds_of_nodes = [], []
    for server_round in range(1, ROUNDS + 1):
        messages = strategy.configure_train(server_round, arrays, ConfigRecord(), grid)
        replies = grid.send_and_receive(messages)
        new, _ = strategy.aggregate_train(server_round, replies)
        assert new is not None
        arrays = new
        vectors = {"model": vector([torch.from_numpy(w.numpy()) for w in arrays.values()])}
        if isinstance(strategy, Scaffold):
            vectors["server"] = (strategy.server_vector / NODES).numpy().copy()
        for k, state in grid.node_states().items():
            for name in KEPT & state.array_records.keys():
                own = state.array_records[name].values()
                vectors[f"node {k}"] = vector([torch.from_numpy(c.numpy()) for c in own])
        history.append(vectors)
        rounds_of_nodes.append(sorted(getattr(strategy, "_recipients", range(NODES))))  # groups ask all
    return history, rounds_of_nodes


def compare(actual: list[Vectors], expected: list[Vectors], tolerance: float) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert sorted(one) == sorted(other)
        for name, values in one.items():
            close(values, other[name], rtol=tolerance, atol=tolerance)
