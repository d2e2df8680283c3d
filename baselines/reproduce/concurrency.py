"""At once: how many runs at a time get the most done on this machine, by measuring.

    python -m baselines.reproduce.concurrency OVERRIDES    # one of those that step at the same time

One run seldom fills a GPU, and runs of one thread leave cores idle; too many share a card that is full. So
one process takes training steps, then two at the same time, four, and so on, as long as that pays.
"""

import contextlib
import dataclasses
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from statistics import fmean

import torch

from baselines.experiment.experiment import Experiment
from baselines.reports import model_cost
from clients.evaluation import evaluate

from .plan import Trial

# How long will it take? Learnt from a short calibration: a few training steps and one batch of test data.
#
#     seconds of a run = start + rounds * (nodes * steps * step + models * test examples * example)
#
# What the server and the messages cost is left out.


Speed = tuple[float, float]  # seconds of a training step; seconds of a test example


class Calibration:
    """The speeds measured so far, one for each kind of step."""

    def __init__(self) -> None:
        self._speeds: dict[str, Speed] = {}
        self._seconds: dict[tuple[str, ...], float] = {}  # of a trial, by its cell's overrides

    def seconds(self, trials: Sequence[Trial]) -> float:
        """Return about how long the trials take, one after another.

        Raises
        ------
        UserError : when one cannot be built, for lack of data, say
        """
        return sum(map(self.of, trials))

    def of(self, trial: Trial) -> float:
        """Return about how long a trial takes; the same for all seeds of its cell."""
        if trial.cell.overrides not in self._seconds:
            self._seconds[trial.cell.overrides] = self._of_one(trial)
        return self._seconds[trial.cell.overrides]

    def _of_one(self, trial: Trial) -> float:
        this = Experiment(shlex.join(trial.overrides))
        step, example = self._speed(this)
        told, training = this.settings, this.training
        sizes = [len(train) for train, _ in this.partitions]
        batches = fmean(-(-size // (training.batch_size or size)) for size in sizes)
        steps = training.local_steps or batches * (training.local_epochs or 0)
        models = this.prototype.max_num_models(told.num_nodes)
        tests = models * len(this.test_examples) / told.evaluate_every
        return _start_seconds() + told.rounds * (told.nodes_in_round * steps * step + tests * example)

    def _speed(self, this: Experiment) -> Speed:
        kind = this.kind_of_step
        if kind not in self._speeds:
            self._speeds[kind] = _measured(this)
        return self._speeds[kind]


def _measured(this: Experiment) -> Speed:
    step = step_of(this)()
    model, task = this.node_model, this.dataset.task
    some = dataclasses.replace(this.test_examples, index=this.test_examples.index[:200])
    evaluate(model, some, task)
    started = time.perf_counter()
    evaluate(model, some, task)
    return step, (time.perf_counter() - started) / len(some)


def step_of(this: Experiment) -> Callable[[], float]:
    """Return what measures the seconds of a training step of a node's, with its data in memory."""
    torch.set_num_threads(this.settings.threads)
    node = this.node(0)
    size = min(this.training.batch_size or len(node.train), len(node.train))
    inputs, targets = node.train.batch(slice(0, size), this.device)
    measure = partial(model_cost.step_seconds, this.node_model, inputs, targets, node.task, this.training)
    return lambda: measure().real


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


GAIN = 1.15  # times the steps a second, for twice as many processes
MOST = 16
READY, GO = "ready", "go"


def fastest_concurrency(rate: Callable[[int], float], most: int) -> tuple[int, float]:
    """Return how many processes at a time gain enough, and how many times one's work they do.

    It is the power of two beyond which twice as many gain too little.

    Parameters
    ----------
    rate : steps a second of so many processes together; 0 where they do not fit the machine
    most : how many make sense
    """
    count = 1
    first = best = rate(1)
    while 2 * count <= most and (found := rate(2 * count)) > GAIN * best:
        count, best = 2 * count, found
    return count, best / first if first else 1.0


def measure_concurrency(trial: Trial) -> tuple[int, float]:
    """Return :func:`fastest` of processes that train as a trial does."""
    return fastest_concurrency(partial(_rate, trial), min(MOST, os.cpu_count() or 1))


def _rate(trial: Trial, count: int) -> float:
    """Return the steps a second of ``count`` processes that train as a trial does, all at the same time."""
    command = [sys.executable, "-m", "baselines.reproduce.concurrency", *trial.overrides]
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(_started(command)) for _ in range(count)]
        if not all(_line(process) == READY for process in processes):
            return 0.0
        with contextlib.suppress(BrokenPipeError):  # its line is empty then
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{GO}\n")
                process.stdin.flush()
        seconds = [_line(process) for process in processes]
        return sum(1 / float(each) for each in seconds) if all(seconds) else 0.0


@contextlib.contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Start a process; end it when the context is left."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints; nothing when it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def main(overrides: Sequence[str]) -> None:
    """Be ready, wait for the word, print the seconds of a training step."""
    this = Experiment(shlex.join(overrides))
    measure = step_of(this)
    print(READY, flush=True)
    sys.stdin.readline()
    print(measure(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
