"""Our commands in this process: what they printed, how they ended, and whether that is as promised."""

import contextlib
import logging
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest import mock

from hydra.core.global_hydra import GlobalHydra

from baselines import run, runtimes
from baselines.experiment import config, experiment
from baselines.experiment.data import load_dataset
from baselines.reports import curves, inspection

PATIENCE = 60  # seconds of this process' time that a command may take
WORK = 3e9  # examples times parameters that a case may cost; beyond, it is only checked
NODES = 60
INTERRUPTED = 130
MEMORY = 4 << 30  # bytes more than this process has already


class CheckedOnly(BaseException):
    """The run passed every check before it began, and was not begun."""


class Hung(BaseException):
    """The command took longer than it may."""


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Parameters
    ----------
    status : what it would exit with; None where it was only checked
    out, err : what it printed
    raised : the last line of a traceback that it would have died of
    """

    status: int | None
    out: str
    err: str
    raised: str = ""


def ended(command: Callable[[], int]) -> Ended:
    """Run a command that prints and returns its exit status."""
    out, err = StringIO(), StringIO()
    status: int | None = 1
    raised = ""
    with _captured(out, err), _limited():
        try:
            status = command()
        except CheckedOnly:
            status = None
        except SystemExit as stop:  # argparse
            status = stop.code if isinstance(stop.code, int) else 1
        except Hung:
            raised = f"Hung: more than {PATIENCE} s"
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            raised = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    if status == INTERRUPTED:  # who runs us wants us to end: no command gets a signal here by itself
        raise KeyboardInterrupt(err.getvalue().strip())
    return Ended(status, out.getvalue(), err.getvalue(), raised)


def launched(arguments: Sequence[str], runs: bool = True) -> Ended:
    """Run ``python -m baselines.run`` in this process; where not ``runs``, up to the first round only."""
    begin = runtimes.Inline.run

    def run_if_small(self: runtimes.Inline, overrides: str, num_nodes: int, folder: Path) -> None:
        if not runs or not _is_small(overrides):
            raise CheckedOnly
        begin(self, overrides, num_nodes, folder)

    with (
        apart(),
        mock.patch.object(sys, "argv", ["run", *arguments]),
        mock.patch.object(runtimes.Inline, "run", run_if_small),
        mock.patch.object(runtimes.Ray, "run", side_effect=CheckedOnly),
        mock.patch.object(runtimes.Ray, "begin", return_value=contextlib.nullcontext()),
        mock.patch.object(runtimes.SuperLink, "run", side_effect=CheckedOnly),
    ):
        return ended(run.main)


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Forget what earlier commands left in this process; no network, and no pictures, which take long."""
    GlobalHydra.instance().clear()
    config.compose_checked.cache_clear()
    experiment.load.cache_clear()
    load_dataset.cache_clear()
    with (
        mock.patch.object(curves, "draw_run", return_value=None),
        mock.patch.object(curves, "draw", return_value=None),
        mock.patch.object(inspection, "draw", return_value=None),
        mock.patch("socket.getaddrinfo", side_effect=OSError("no network in these tests")),
        mock.patch.dict(os.environ, HF_HUB_OFFLINE="1"),
    ):
        yield


def _is_small(overrides: str) -> bool:
    """Say whether a run ends soon."""
    setup = experiment.load(overrides)
    training, rounds = setup.training, setup.settings.rounds
    sizes = [len(train) for train, _ in setup.partitions]
    if training.local_steps is not None:
        steps = training.local_steps * len(sizes)
        examples = sum(training.local_steps * min(training.batch_size or size, size) for size in sizes)
    else:
        examples = (training.local_epochs or 1) * sum(sizes)
        steps = examples / (training.batch_size or max(sizes))
    parameters = sum(parameter.numel() for parameter in setup.node_model.parameters())
    small = examples * rounds * parameters < WORK and steps * rounds < 2000
    return small and len(sizes) <= NODES and rounds <= 5


@contextlib.contextmanager
def _captured(out: StringIO, err: StringIO) -> Iterator[None]:
    """Send what is printed and logged to these."""
    loggers = [logging.getLogger("flwr"), logging.getLogger()]
    handlers = [h for logger in loggers for h in logger.handlers if type(h) is logging.StreamHandler]
    before = [handler.stream for handler in handlers]
    for handler in handlers:
        handler.stream = err  # not setStream, which flushes: another test may have closed the old one
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            handler.stream = stream


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """End a command that takes too long, or more memory than a machine may have."""

    def stop(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGPROF, stop)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
