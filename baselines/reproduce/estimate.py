"""How long will it take? Learnt from a short calibration: a few training steps and one batch of test data.

    seconds of a run = start + rounds * (nodes * steps * step + models * test examples * example)

What the server and the messages cost is left out.
"""

import dataclasses
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from statistics import fmean

import torch

from baselines.experiment.experiment import Experiment
from baselines.reports import model_cost
from clients.evaluation import evaluate

from .plan import Trial

Speed = tuple[float, float]  # seconds of a training step; seconds of a test example


class Calibration:
    """The speeds measured so far, one for each kind of step."""

    def __init__(self) -> None:
        self._speeds: dict[str, Speed] = {}

    def seconds(self, trials: Sequence[Trial]) -> float:
        """Return about how long the trials take, one after another.

        Raises
        ------
        UserError : when one cannot be built, for lack of data, say
        """
        by_cell: dict[tuple[str, ...], list[Trial]] = {}
        for trial in trials:
            by_cell.setdefault(trial.cell.overrides, []).append(trial)
        return sum(len(own) * self._of_one(own[0]) for own in by_cell.values())

    def _of_one(self, trial: Trial) -> float:
        this = Experiment(shlex.join(trial.overrides))
        step, example = self._speed(this)
        told, training = this.settings, this.training
        sizes = [len(train) for train, _ in this.partitions]
        batches = fmean(-(-size // (training.batch_size or size)) for size in sizes)
        steps = training.local_steps or batches * (training.local_epochs or 0)
        models = this.prototype.most_models(told.num_nodes)
        tests = models * len(this.test_examples) / told.evaluate_every
        return _start_seconds() + told.rounds * (told.asked * steps * step + tests * example)

    def _speed(self, this: Experiment) -> Speed:
        kind = this.kind_of_step
        if kind not in self._speeds:
            torch.set_num_threads(this.settings.threads)
            self._speeds[kind] = _measured(this)
        return self._speeds[kind]


def _measured(this: Experiment) -> Speed:
    node, model = this.node(0), this.node_model
    size = min(this.training.batch_size or len(node.train), len(node.train))
    inputs, targets = node.train.batch(slice(0, size), this.device)
    step = model_cost.step_seconds(model, inputs, targets, node.task, this.training)
    some = dataclasses.replace(this.test_examples, index=this.test_examples.index[:200])
    evaluate(model, some, node.task)
    started = time.perf_counter()
    evaluate(model, some, node.task)
    return step, (time.perf_counter() - started) / len(some)


@cache
def _start_seconds() -> float:
    """Return how long a process takes to begin."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import baselines.run, baselines.engine.rounds"], check=True)
    return 2 * (time.perf_counter() - started)  # it also loads data, and draws a figure in the end


def told(seconds: float) -> str:
    """Return a time for a reader: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
