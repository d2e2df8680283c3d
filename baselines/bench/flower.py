"""Peer: Flower's own simulation engine, its stock FedAvg and a client as in Flower's quickstart.

The client trains on tensors in memory, as ours and the plain loop do; the quickstart's own pipeline of
pictures takes about twice as long.
"""

import logging
import time
import warnings
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from baselines.experiment import experiment

from .plain import Client, ClientOf


def seconds(setting: str, client_of: ClientOf, rounds: int, workers: int) -> float:
    """Return the seconds of a round, the median of all but the first; the workers share a GPU evenly."""
    from flwr.simulation import run_simulation

    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
    this = experiment.load(setting)
    share = 1 / workers if this.device.type == "cuda" else 0
    strategy = _Timed(min_available_nodes=this.settings.num_nodes)
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy.start(grid, this.initial_arrays(), num_rounds=rounds + 1)

    try:
        run_simulation(
            server_app,
            _client_app(setting, client_of),
            this.settings.num_nodes,
            backend_config={
                "init_args": {"address": "local", "num_cpus": workers, "log_to_driver": False},
                "client_resources": {"num_cpus": 1, "num_gpus": share},
            },
        )
    finally:
        logger.setLevel(level)
    return median(after - before for before, after in pairwise(strategy.starts[1:]))


class _Timed(FedAvg):
    """Flower's FedAvg, which notes when each round begins."""

    def __init__(self, min_available_nodes: int) -> None:
        super().__init__(fraction_evaluate=0.0, min_available_nodes=min_available_nodes)
        self.starts: list[float] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.starts.append(time.perf_counter())
        return super().configure_train(server_round, arrays, config, grid)


def _client_app(setting: str, client_of: ClientOf) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        client = _client(setting, client_of, int(context.node_config["partition-id"]))
        model = experiment.load(setting).node_model  # its worker's own
        arrays: Any = message.content["arrays"]
        model.load_state_dict(arrays.to_torch_state_dict())
        client.train(model)
        metrics = MetricRecord({"num-examples": len(client.targets)})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


@cache
def _client(setting: str, client_of: ClientOf, partition_id: int) -> Client:
    """Return a client whose tensors its worker keeps."""
    return client_of(experiment.load(setting), partition_id)
