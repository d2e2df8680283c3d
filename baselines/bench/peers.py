"""Peers: what else a user could run. Those that are not installed are skipped, with a line that says so."""

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from rich.console import Console

from baselines.experiment import experiment

from .plain import Client, ClientOf
from .timing import Contenders


@dataclass(frozen=True)
class Peer:
    """Another framework on the same work.

    Parameters
    ----------
    name : as the table has it
    module : which has to be installed
    install : the command that installs it
    measure : returns the seconds of a round
    """

    name: str
    module: str
    install: str
    measure: Callable[[], float]


def present(workload: str, peers: Sequence[Peer], wanted: bool) -> Contenders:
    """Return the peers that can run, by name; print a line for every other one."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    found: Contenders = {}
    for peer in peers:
        if find_spec(peer.module) is None:
            console.print(f"{workload}: {peer.name} skipped, it is not installed: {peer.install}")
        elif not wanted:
            console.print(f"{workload}: {peer.name} skipped: add --peers to measure it too")
        else:
            found[peer.name] = peer.measure
    return found


def flower(setting: str, client_of: ClientOf = Client.of, rounds: int = 4, workers: int = 2) -> Peer:
    """Return Flower's own simulation: ``workers`` Ray workers with one thread each.

    The first of a measurement's ``rounds`` rounds is not counted.
    """

    def measure() -> float:

        return seconds(setting, client_of, rounds, workers)

    return Peer("Flower on Ray", "ray", "pip install 'flwr[simulation]'", measure)


def pfl_research(setting: str, client_of: ClientOf = Client.of, rounds: int = 3) -> Peer:
    """Return pfl-research in one process.

    The first of a measurement's ``rounds`` rounds is not counted.
    """

    def measure() -> float:
        from .pfl_research import seconds

        this = experiment.load(setting)
        clients = [client_of(this, k) for k in range(this.settings.num_nodes)]
        return seconds(this.model(), clients, rounds)

    return Peer("pfl-research", "pfl", "pip install pfl", measure)


# Peer: Flower's own simulation engine, its stock FedAvg and a client as in Flower's quickstart.
#
# The client trains on tensors in memory, as ours and the plain loop do; the quickstart's own pipeline of
# pictures takes about twice as long.


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
