"""Peer: Apple's pfl-research, its federated averaging on its simulated backend, in one process.

Imported only where it is installed. Its batches are cut once and not shuffled from round to round, which
spares it that work.
"""

import logging
import time
from collections.abc import Sequence
from functools import partial
from itertools import cycle, pairwise
from statistics import median
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
from pfl.algorithm.base import NNAlgorithmParams  # type: ignore[import-not-found]
from pfl.algorithm.federated_averaging import FederatedAveraging  # type: ignore[import-not-found]
from pfl.callback.base import TrainingProcessCallback  # type: ignore[import-not-found]
from pfl.data.dataset import Dataset  # type: ignore[import-not-found]
from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams  # type: ignore[import-not-found]
from pfl.metrics import Metrics, Weighted  # type: ignore[import-not-found]
from pfl.model.pytorch import PyTorchModel  # type: ignore[import-not-found]
from torch import Tensor, nn

from .plain import Client


class Judged(nn.Module):
    """A model with the two methods that pfl asks for."""

    def __init__(self, model: nn.Module, client: Client) -> None:
        super().__init__()
        self.model, self.client = model, client

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return what training minimises."""
        return self.client.loss(self.model(inputs), targets)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Any]:
        """Return the loss; asked for in the first round alone."""
        return {"loss": Weighted(float(self.loss(inputs, targets)), 1)}


class Clock(TrainingProcessCallback):
    """Notes when each round ends."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
        self.ends.append(time.perf_counter())
        return False, Metrics()


def seconds(model: nn.Module, clients: Sequence[Client], rounds: int) -> float:
    """Return the seconds of a round, the median of all but the first."""
    torch.set_num_threads(1)
    logging.getLogger("pfl").setLevel(logging.ERROR)
    client = clients[0]
    users = cycle(range(len(clients)))  # all of them in every round
    datasets = [Dataset((each.inputs, each.targets)) for each in clients]
    data = FederatedDataset(lambda user: datasets[user], partial(next, users))
    judged = Judged(model, client)
    clock = Clock()
    whole = client.batch_size is None
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
            local_num_epochs=client.steps if whole else 1,
            local_learning_rate=client.lr,
            local_batch_size=client.batch_size,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    return median(after - before for before, after in pairwise(clock.ends))
