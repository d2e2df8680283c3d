"""Does FedExP come nearer to the optimum in every round? Section 1 of the report ("monotony").

In the over-parameterised regression every node can be solved exactly, and the optimum w* that a method with
steps in the span of the data can reach is the solution nearest to the initial model,
w* = w[0] + A^+ (b - A w[0]). A run keeps no model but the last, so it is run again, in this process.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from flwr.app import Context, Message
from torch import Tensor

from baselines.experiment.experiment import Experiment
from baselines.grids.inline import InlineGrid
from clients import Node, client_app
from strategies.shared import protocol
from strategies.shared.arrays import values_of

from .last_model import last_model


def rounds_away(folder: Path) -> int:
    """Return in how many rounds the distance from w[t] to w* rises."""
    experiment, models = _models(folder)
    return count_rises((models - nearest_solution(experiment, models[0])).norm(dim=1))


def rounds_of_rising_loss(folder: Path) -> int:
    """Return in how many rounds the loss of w[t] rises; what is evaluated may be a mean of iterates."""
    experiment, models = _models(folder)
    a, b = experiment.dataset.train_inputs, experiment.dataset.train_targets
    return count_rises((models @ a.T - b.flatten()).square().sum(1))


@cache
def _models(folder: Path) -> tuple[Experiment, Tensor]:
    """Return a run's experiment, and its models [T + 1, P]."""
    experiment, _ = last_model(folder)
    return experiment, torch.stack(list(models_by_round(experiment)))


def count_rises(values: Tensor) -> int:
    """Return how many values are above the one before."""
    return int((values[1:] > values[:-1]).sum())


def models_by_round(experiment: Experiment) -> Iterator[Tensor]:
    """Yield the parameters [P] of the initial model, and those after each round."""
    settings = experiment.settings

    def node_of(_: Message, context: Context) -> Node:
        return experiment.node(int(context.node_config[protocol.PARTITION_ID]))

    grid = InlineGrid(client_app(node_of), settings.num_nodes)
    strategy, config = experiment.strategy(), experiment.train_config()
    arrays = experiment.initial_arrays()
    for server_round in range(1, settings.rounds + 2):
        yield torch.cat([values_of(array).flatten() for array in arrays.values()])
        if server_round <= settings.rounds:
            replies = grid.send_and_receive(
                strategy.configure_train(server_round, arrays, config, grid), timeout=settings.timeout
            )
            arrays = strategy.aggregate_train(server_round, replies)[0] or arrays


def nearest_solution(experiment: Experiment, start: Tensor) -> Tensor:
    """Return the w* [P] nearest to ``start`` that solves all nodes' equations A w = b."""
    a, b = experiment.dataset.train_inputs, experiment.dataset.train_targets
    return start + torch.linalg.pinv(a) @ (b.flatten() - a @ start)
