"""Measure which way to train a round's nodes is faster here: one by one or batched.

A shortened round 1 is run alternately in both ways, with its own strategy, model and node states. It leaves
no trace: the run, including its random draws, begins as if nothing had been measured.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from flwr.app import Context, Message

from baselines.apps import client_app_of, node_of
from baselines.experiment.experiment import Experiment
from baselines.grids.inline import InlineGrid
from clients import LocalTraining, Node, client_app
from clients.batched.together import BatchedTrainer
from clients.fast.gradient import get_gradient
from clients.fast.guards import restore_random_state
from strategies.shared.arrays import move_record

NUM_STEPS = 10  # of the node with the most examples, per turn
NUM_TURNS = 3  # of each way; the fastest one counts
WARM_UP_SECONDS = 0.3  # seconds of turns beforehand, in which steps are recorded or captured
CANNOT_MEASURE = "nodes cannot be batched"


def seconds_of(experiment: Experiment, sites: Mapping[str, str] | None) -> tuple[float, float] | str:
    """Return the seconds of a shortened round one by one and batched; or why they cannot be measured."""
    with restore_random_state(), _drop_measured_model():
        trial = _TimedRounds(experiment, sites)
        if len(trial.sizes) < 2:
            return "fewer than two nodes train in round 1"
        ways = [None, BatchedTrainer(trial.node)]
        if reason := next(filter(None, map(trial.warmed, ways)), None):
            return reason
        turns = [[trial.turn(way) for way in ways] for _ in range(NUM_TURNS)]
        one_by_one, batched = (min(seconds) for seconds in zip(*turns, strict=True))
        return one_by_one, batched


@contextmanager
def _drop_measured_model() -> Iterator[None]:
    """Afterwards, drop the measured model and its recorded steps."""
    try:
        yield
    finally:
        get_gradient.cache_clear()


class _TimedRounds:
    """Runs the shortened round.

    Parameters
    ----------
    experiment : the experiment, whose own model stays unchanged
    sites : {name: path} of data of the nodes' own
    """

    def __init__(self, experiment: Experiment, sites: Mapping[str, str] | None) -> None:
        self.experiment, self.sites, self.model = experiment, sites, experiment.model()
        self.strategy = experiment.strategy()
        self.arrays = move_record(experiment.initial_arrays(), experiment.device)
        grid = InlineGrid(client_app_of(experiment.overrides), experiment.settings.num_nodes, None, sites)
        pairs = [(m, grid.context(m.metadata.dst_node_id)) for m in self._messages(grid)]
        self.sizes = [len(node_of(experiment.overrides, *each).train) for each in pairs]
        self.training, self.share = shorten_training(experiment.training, self.sizes)

    def node(self, message: Message, context: Context) -> Node:
        """Return a message's node, with a share of its examples."""
        node = node_of(self.experiment.overrides, message, context)
        batch = self.training.batch_size or len(node.train)
        rows = batch * math.ceil(self.share * len(node.train) / batch)
        train = replace(node.train, index=node.train.index[:rows])
        return replace(node, model=self.model, training=self.training, train=train)

    def warmed(self, trainer: BatchedTrainer | None) -> str | None:
        """Warm up; return the reason if the way cannot be measured, else None."""
        until = time.perf_counter() + WARM_UP_SECONDS
        while True:
            grid = self._grid(trainer)
            replies = grid.send_and_receive(self._messages(grid))
            if any(reply.has_error() for reply in replies):
                return "a node has failed while it was measured"
            if trainer and grid.answering.batched_trainer is None:
                return CANNOT_MEASURE
            if time.perf_counter() >= until:
                return None

    def turn(self, trainer: BatchedTrainer | None) -> float:
        """Return the seconds of one turn."""
        grid = self._grid(trainer)
        messages = self._messages(grid)
        started = time.perf_counter()
        grid.send_and_receive(messages)
        if self.experiment.device.type != "cpu":
            torch.accelerator.synchronize(self.experiment.device)
        return time.perf_counter() - started

    def _messages(self, grid: InlineGrid) -> list[Message]:
        return list(self.strategy.configure_train(1, self.arrays, self.experiment.train_config(), grid))

    def _grid(self, trainer: BatchedTrainer | None) -> InlineGrid:
        return InlineGrid(client_app(self.node), self.experiment.settings.num_nodes, trainer, self.sites)


def shorten_training(training: LocalTraining, sizes: Sequence[int]) -> tuple[LocalTraining, float]:
    """Return a training of a few steps, and the share of their examples that nodes use for it.

    Nodes keep their proportions: one with twice the examples takes twice the steps.
    """
    if training.local_steps:
        return replace(training, stragglers=0.0, local_steps=min(training.local_steps, NUM_STEPS)), 1.0
    epoch = replace(training, stragglers=0.0, local_epochs=1)
    longest = max(map(epoch.steps, sizes), default=1)
    epochs = max(1, min(training.local_epochs or 1, NUM_STEPS // longest))
    return replace(epoch, local_epochs=epochs), min(1.0, NUM_STEPS / longest)
