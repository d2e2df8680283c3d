"""At once: how many runs at a time get the most done on this machine, by measuring.

    python -m baselines.reproduce.at_once OVERRIDES    # one of those that step at the same time

One run seldom fills a GPU, and runs of one thread leave cores idle; too many share a card that is full. So
one process takes training steps, then two at the same time, four, and so on, as long as that pays.
"""

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from baselines.experiment.experiment import Experiment

from .estimate import step_of
from .plan import Trial

GAIN = 1.15  # times the steps a second, for twice as many processes
MOST = 16
READY, GO = "ready", "go"


def fastest(rate: Callable[[int], float], most: int) -> tuple[int, float]:
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


def measured(trial: Trial) -> tuple[int, float]:
    """Return :func:`fastest` of processes that train as a trial does."""
    return fastest(partial(_rate, trial), min(MOST, os.cpu_count() or 1))


def _rate(trial: Trial, count: int) -> float:
    """Return the steps a second of ``count`` processes that train as a trial does, all at the same time."""
    command = [sys.executable, "-m", "baselines.reproduce.at_once", *trial.overrides]
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
