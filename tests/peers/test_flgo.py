"""Our FedAsync, FedBuff, AFL and power-of-choice beside flgo's, on random updates.

Compared: the model after each server step, AFL's weights, and which nodes power-of-choice takes. flgo's servers
do their own arithmetic; which update arrives when is read off our clock. Tolerance: 1e-12 in float64.

Where flgo 0.4.4 and the paper differ, and what is done about it here:
* power-of-choice: flgo ranks the d candidates, and then takes those ranks for places in the list of all nodes. With
  d = all, as here, these are one. It draws candidates by their numbers of examples, as the paper does.
* AFL: flgo's loss is that before local training, as ours and the paper's; its learning rate of w cancels.
* FedAsync's hinge is 1 / (a (tau - b)) at flgo, 1 / (a (tau - b) + 1) in section 5.2: only the power is compared.
"""

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor, nn

from helpers.federation import Federation, answer, model_in, record, round_of, sent_model
from helpers.peers.random_updates import Model, close, draws, flat, node_of, start
from strategies import AFL, Agnostic, Constant, FedAsync, FedBuff, LognormalClock, PowerOfChoice
from strategies.core.asynchronous import AsynchronousStrategy

pytest.importorskip("flgo", reason="flgo is not installed: scripts/test-peers")
from flgo.algorithm import afl, fedasync, fedbuff, powerofchoice  # type: ignore[import-not-found]
from flgo.utils.fmodule import FModule  # type: ignore[import-not-found]

NODES, ROUNDS, SHAPES = 5, 12, "layers"
SIZE = len(flat(start(SHAPES)))


class Vector(FModule):  # type: ignore[misc]
    """flgo's kind of model, of one vector."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))


def model_of(values: Tensor, server_round: int = 0) -> Vector:
    model = Vector()
    model.w.data = values.clone()
    model._round = server_round
    return model


def server_of(kind: type, **values: Any) -> Any:
    """Return one of flgo's servers without its simulator."""
    server = object.__new__(kind)
    vars(server).update(values)
    return server


class FedAsyncServer(fedasync.Server):  # type: ignore[misc]
    """flgo's, of whose models one arrives at a time."""

    def aggregate(self, models: list[Vector]) -> Vector:
        (model,) = models
        return model


def play(strategy: AsynchronousStrategy, rounds: list[list[Model]]) -> list[tuple[Tensor, list[Any]]]:
    """Return the model after each step, and the (partition, round of its start) that the step was made of."""
    grid, arrays, history = Federation(node_of(rounds), NODES), record(start(SHAPES)), []
    for t in range(1, len(rounds) + 1):
        waiting = {k: update.started for k, update in strategy._waiting.items()}
        messages = list(strategy.configure_train(t, arrays, ConfigRecord(), grid))
        waiting |= dict.fromkeys(strategy._recipients, t)
        new, _ = strategy.aggregate_train(t, grid.send_and_receive(messages))
        assert new is not None
        arrays = new
        arrived = [(k, s) for k, s in waiting.items() if k not in strategy._waiting]
        history.append((flat(model_in(arrays)), arrived))
    return history


def assert_stale(history: list[tuple[Tensor, list[Any]]]) -> None:
    ages = {t - s for t, (_, arrived) in enumerate(history, start=1) for _, s in arrived}
    assert len(ages) > 2


CLOCK = LognormalClock(spread=1.5, bytes_per_second=None)


def test_fedasync() -> None:
    rounds = draws(SHAPES, NODES, ROUNDS, seed=4)
    strategy = FedAsync(alpha=0.6, num_nodes=NODES, nodes_per_round=3, clock=CLOCK, query_partitions=True)
    history = play(strategy, rounds)
    server = server_of(
        FedAsyncServer, alpha=0.6, flag="poly", poly_a=0.5, model=model_of(flat(start(SHAPES)))
    )
    sent = [server.model.w.data.clone()]
    for t, (actual, ((k, s),)) in enumerate(history, start=1):
        server.current_round = t
        server.package_handler({"__cid": [k], "model": [model_of(sent[s - 1] - flat(rounds[s - 1][k]), s)]})
        sent.append(server.model.w.data.clone())
        close(actual, sent[-1], rtol=1e-12, atol=1e-12)
    assert_stale(history)


def test_fedbuff() -> None:
    rounds, eta, size = draws(SHAPES, NODES, ROUNDS, seed=5), 0.7, 2
    strategy = FedBuff(
        buffer_size=size,
        num_nodes=NODES,
        nodes_per_round=4,
        clock=CLOCK,
        step_size=Constant(eta),
        query_partitions=True,
    )
    history = play(strategy, rounds)
    first = model_of(flat(start(SHAPES)))
    server = server_of(
        fedbuff.Server, eta=eta, buffer=[], buffer_ratio=size / NODES, num_clients=NODES, model=first
    )
    for t, (actual, arrived) in enumerate(history, start=1):
        server.current_round = t
        for k, s in arrived:
            stepped = server.package_handler(
                {"__cid": [k], "model": [model_of(-flat(rounds[s - 1][k]), s)]}
            )
        assert stepped  # with the last of them
        close(actual, server.model.w.data, rtol=1e-12, atol=1e-12)
    assert_stale(history)


def test_afl() -> None:
    rounds, rate = draws(SHAPES, NODES, ROUNDS, seed=6), 0.2
    losses = np.random.default_rng(3).uniform(0, 3, size=(ROUNDS, NODES))

    def node(k: int, content: RecordDict) -> RecordDict:
        t = round_of(content)
        moved = {name: np.asarray(w - rounds[t - 1][k][name]) for name, w in sent_model(content).items()}
        return answer(moved, 1, **{"start-loss": float(losses[t - 1, k])})

    class AFLServer(afl.Server):  # type: ignore[misc]
        """flgo's, whose nodes answer as ours do."""

        def communicate(self, selected: list[int]) -> dict[str, list[Any]]:
            t = self.current_round
            ends = [model_of(self.model.w.data - flat(rounds[t - 1][k])) for k in selected]
            return {"model": ends, "loss": [losses[t - 1, k] for k in selected]}

    first = model_of(flat(start(SHAPES)))
    server = server_of(
        AFLServer,
        model=first,
        result_model=first,
        num_clients=NODES,
        learning_rate=0.1,
        learning_rate_lambda=rate,
        dynamic_lambdas=np.ones(NODES) / NODES,
    )
    strategy = AFL(weighting=Agnostic(rate=rate), num_nodes=NODES, query_partitions=True)
    grid, arrays, num_cut = Federation(node, NODES), record(start(SHAPES)), 0
    for t in range(1, ROUNDS + 1):
        messages = strategy.configure_train(t, arrays, ConfigRecord(), grid)
        new, metrics = strategy.aggregate_train(t, grid.send_and_receive(messages))
        assert isinstance(new, ArrayRecord)
        arrays, server.current_round = new, t
        server.iterate()
        close(flat(model_in(arrays)), server.model.w.data, rtol=1e-12, atol=1e-12)
        close(
            [metrics[f"weight-{k}"] for k in range(NODES)], server.dynamic_lambdas, rtol=1e-12, atol=1e-12
        )
        num_cut += server.dynamic_lambdas.count(0)
    assert num_cut  # by the projection


class AllAvailable(powerofchoice.Server):  # type: ignore[misc]
    """flgo's without its simulator of who is there."""

    available_clients, num_clients = [*range(NODES)], NODES


class Client:
    """A node of flgo's that says its loss."""

    train_data: ClassVar[list[int]] = [0]

    def __init__(self, loss: float) -> None:
        self.loss = loss

    def test(self, model: object, split: str) -> dict[str, float]:
        return {"loss": self.loss}


def test_power_of_choice() -> None:
    draw = np.random.default_rng(2)
    for seed in range(20):
        losses = draw.uniform(size=NODES).tolist()
        clients = [Client(loss) for loss in losses]
        server = server_of(AllAvailable, d=NODES, model=None, clients=clients, clients_per_round=2)
        expected = server.sample()
        strategy = PowerOfChoice(nodes_per_round=2, num_nodes=NODES, candidates=NODES, seed=seed)
        strategy._losses = dict(enumerate(losses))
        assert strategy.choose([*range(NODES)], 1) == sorted(expected)
