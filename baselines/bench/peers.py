"""Peers: other frameworks on the same work, with the plain loop's clients and tensors in memory.

They are Flower's simulation engine, with its FedAvg and a client as in Flower's quickstart (whose own image
pipeline would take twice as long), and Apple's pfl-research on its simulated backend. pfl cuts its batches
once and does not shuffle them between rounds, which saves it that work.
"""

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import cycle, pairwise
from statistics import median
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from rich.console import Console
from torch import Tensor, nn

from baselines.experiment.experiment import load

from .by_hand import Client, ClientOf
from .report import Contenders

WORKERS = 2  # of Flower's simulation, with one thread each; they share a GPU evenly
FLOWER = "Flower on Ray"


@dataclass(frozen=True)
class Peer:
    """Another framework on the same work.

    Parameters
    ----------
    name : in the table
    module : the module that must be installed
    install : the command that installs it
    measure : returns the seconds of a round
    """

    name: str
    module: str
    install: str
    measure: Callable[[], float]


def list_present_peers(workload: str, peers: Sequence[Peer], is_requested: bool) -> Contenders:
    """Return the peers that can run, by name; print a line for each other one."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    contenders: Contenders = {}
    for peer in peers:
        if find_spec(peer.module) is None:
            console.print(f"{workload}: {peer.name} skipped, it is not installed: {peer.install}")
        elif not is_requested:
            console.print(f"{workload}: {peer.name} skipped: add --peers to measure it too")
        else:
            contenders[peer.name] = peer.measure
    return contenders


def all_peers(setting: str, client_of: ClientOf, rounds: int) -> list[Peer]:
    """Return every peer; the first of a measurement's rounds is not counted."""
    of_flower = partial(flower_seconds, setting, client_of, rounds)
    of_pfl = partial(pfl_setting_seconds, setting, client_of, rounds)
    return [
        Peer(FLOWER, "ray", "pip install 'flwr[simulation]'", of_flower),
        Peer("pfl-research", "pfl", "pip install pfl", of_pfl),
    ]


def flower_seconds(setting: str, client_of: ClientOf, rounds: int) -> float:
    """Return the seconds of a round, the median of all but the first."""
    from flwr.simulation import run_simulation

    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
    experiment = load(setting)
    strategy = _TimedFedAvg(min_available_nodes=experiment.settings.num_nodes)
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy.start(grid, experiment.initial_arrays(), num_rounds=rounds + 1)

    share = 1 / WORKERS if experiment.device.type == "cuda" else 0
    try:
        run_simulation(
            server_app,
            _client_app(setting, client_of),
            experiment.settings.num_nodes,
            backend_config={
                "init_args": {"address": "local", "num_cpus": WORKERS, "log_to_driver": False},
                "client_resources": {"num_cpus": 1, "num_gpus": share},
            },
        )
    finally:
        logger.setLevel(level)
    return median(after - before for before, after in pairwise(strategy.starts[1:]))


class _TimedFedAvg(FedAvg):
    """Flower's FedAvg, recording when each round begins."""

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
        model = load(setting).node_model  # the worker's own model
        arrays: Any = message.content["arrays"]
        model.load_state_dict(arrays.to_torch_state_dict())
        client.train(model)
        metrics = MetricRecord({"num-examples": len(client.targets)})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


@cache
def _client(setting: str, client_of: ClientOf, partition_id: int) -> Client:
    """Return a client, cached in its worker."""
    return client_of(load(setting), partition_id)


def pfl_setting_seconds(setting: str, client_of: ClientOf, rounds: int) -> float:
    """Return the seconds of a round of a setting in one process."""
    experiment = load(setting)
    clients = [client_of(experiment, k) for k in range(experiment.settings.num_nodes)]
    return pfl_seconds(experiment.model(), clients, rounds)


def pfl_seconds(model: nn.Module, clients: Sequence[Client], rounds: int) -> float:
    """Return the seconds of a round, the median of all but the first; train ``model`` in place."""
    from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
    from pfl.algorithm.base import NNAlgorithmParams  # type: ignore[import-not-found]
    from pfl.algorithm.federated_averaging import FederatedAveraging  # type: ignore[import-not-found]
    from pfl.data.dataset import Dataset  # type: ignore[import-not-found]
    from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams  # type: ignore[import-not-found]
    from pfl.model.pytorch import PyTorchModel  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    logging.getLogger("pfl").setLevel(logging.ERROR)
    client = clients[0]
    users = cycle(range(len(clients)))  # all take part in every round
    datasets = [Dataset((each.inputs, each.targets)) for each in clients]
    data = FederatedDataset(lambda user: datasets[user], partial(next, users))
    judged = _PflModel(model, client)
    clock = _clock()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=len(clients),
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=PyTorchModel(judged, torch.optim.SGD, torch.optim.SGD(judged.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=client.steps if client.batch_size is None else 1,
            local_learning_rate=client.lr,
            local_batch_size=client.batch_size,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    return median(after - before for before, after in pairwise(clock.ends))


class _PflModel(nn.Module):
    """A model with the two methods that pfl needs."""

    def __init__(self, model: nn.Module, client: Client) -> None:
        super().__init__()
        self.model, self.client = model, client

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the training loss."""
        return self.client.loss(self.model(inputs), targets)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Any]:
        """Return the loss; called only in the first round."""
        from pfl.metrics import Weighted  # type: ignore[import-not-found]

        return {"loss": Weighted(float(self.loss(inputs, targets)), 1)}


def _clock() -> Any:
    """Return a pfl callback that records in ``ends`` when each round ends."""
    from pfl.callback.base import TrainingProcessCallback  # type: ignore[import-not-found]
    from pfl.metrics import Metrics  # type: ignore[import-not-found]

    class Clock(TrainingProcessCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.ends: list[float] = []

        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            self.ends.append(time.perf_counter())
            return False, Metrics()

    return Clock()
