"""Hydra's callbacks, its job log, and the mode that it was started in: one run, a sweep, or a search."""

import contextlib
import logging
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from math import prod
from pathlib import Path
from typing import Any, cast

from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from baselines.errors import UserError

from .overrides import MULTIRUN, swept


@dataclass
class Sweep:
    """Where a sweep of this process stands.

    Parameters
    ----------
    total : how many runs it has; None where only the sweeper knows
    number : of the run that it is at, from 0
    seconds, runs : what those have taken that were not finished already, and how many they were
    """

    total: int | None
    number: int = 0
    seconds: float = 0.0
    runs: float = 0.0

    def count(self, seconds: float, share: float) -> None:
        """Count a run that has ended after a share of its rounds."""
        self.seconds, self.runs = self.seconds + seconds, self.runs + share

    def seconds_left(self, seconds: float, share: float) -> float | None:
        """Return how long the runs left will take, where this one has done a share in ``seconds``."""
        done = self.runs + share
        left = (self.total or 0) - self.number - share
        return (self.seconds + seconds) / done * left if done else None


_sweep: Sweep | None = None  # Hydra makes the callback, and tells nobody where it is


def current_sweep() -> Sweep | None:
    """Return the sweep whose runs this process does one by one; None outside of one."""
    return _sweep


class SweepProgress(Callback):
    """Print ``run 2 of 6: strategy=fedexp seed=0`` before a run of a sweep; nothing before a single one.

    Where a launcher runs several at once, print a line after each, too: ``2 of 6 runs done in 0:01:10``.
    """

    def __init__(self) -> None:
        self.sweeping = False
        self.total: int | None = None
        self.swept: set[str] = set()

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Count the runs: the sweeper's number of trials, or all combinations of what is swept.

        Write down what was asked for, by which the runs' folders are named: not every sweeper does.
        """
        varied = swept(config.hydra)
        self.swept = {override.get_key_element() for override in varied}
        self.total = config.hydra.sweeper.get("n_trials") or _combinations(varied)
        self.sweeping = True
        set_sweep(Sweep(self.total))
        for line in equal_values(varied):
            Console(soft_wrap=True, highlight=False, markup=False).print(line)
        with contextlib.suppress(OSError):  # Hydra meets that, too, and says so
            folder = Path(config.hydra.sweep.dir)
            folder.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(config, folder / MULTIRUN)
            if _is_parallel(config.hydra):
                EndedRuns(folder / ENDED, self.total).follow()

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Say which one it is, and what is its own of what is swept."""
        if not self.sweeping:
            return
        own = [text for text in _as_typed(config) if text.partition("=")[0] in self.swept]
        console = Console(soft_wrap=True, highlight=False, markup=False)
        of = f" of {self.total}" if self.total else ""
        console.print(f"run {config.hydra.job.num + 1}{of}: {' '.join(own) or 'the only one'}")
        if _sweep:
            _sweep.number = config.hydra.job.num

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Report the end of a run to the process that started the sweep; this may be another one."""
        if self.sweeping and _is_parallel(config.hydra):
            how = "finished" if job_return.status is JobStatus.COMPLETED else "failed"
            with contextlib.suppress(OSError), (Path(config.hydra.sweep.dir) / ENDED).open("a") as file:
                file.write(f"run {config.hydra.job.num + 1} {how}\n")

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Forget the sweep: this process may go on with something else."""
        set_sweep(None)
        if EndedRuns.current:
            EndedRuns.current.stop()


ENDED = ".ended_runs"  # in the sweep's folder while it runs: a line for each run that has ended


class EndedRuns:
    """Print a line for each run that ends in another process, which writes one into a file.

    Parameters
    ----------
    path : the file, where all processes see it
    total : how many runs there are; None where only the sweeper knows
    """

    current: "EndedRuns | None" = None  # of this process; Hydra copies the callback into others

    def __init__(self, path: Path, total: int | None) -> None:
        self.path, self.total = path, total
        self._start, self._done, self._stop = time.monotonic(), 0, threading.Event()
        self._thread = threading.Thread(target=self._print_lines, daemon=True)

    def follow(self) -> None:
        """Begin to print."""
        self.path.write_text("")
        EndedRuns.current = self
        self._thread.start()

    def stop(self) -> None:
        """Print what is left, and remove the file."""
        self._stop.set()
        self._thread.join()
        self.path.unlink(missing_ok=True)
        EndedRuns.current = None

    def _print_lines(self) -> None:
        while True:
            stops = self._stop.wait(LOOK_EVERY)  # before the file is read for the last time
            with contextlib.suppress(OSError):
                for run in self.path.read_text().splitlines()[self._done :]:
                    self._done += 1
                    print(self._line(run, time.monotonic() - self._start), flush=True)
            if stops:
                return

    def _line(self, run: str, seconds: float) -> str:
        of = f" of {self.total}" if self.total else ""
        rest = (self.total or 0) - self._done
        left = f", about {_clock(seconds / self._done * rest)} left" if rest > 0 else ""
        return f"{self._done}{of} runs done in {_clock(seconds)}{left}: {run}"


LOOK_EVERY = 0.5  # seconds


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def set_sweep(sweep: Sweep | None) -> None:
    """Let :func:`current_sweep` return it."""
    global _sweep
    _sweep = sweep


def equal_values(varied: list[Override]) -> Iterator[str]:
    """Yield a line for each setting that is swept over values of which some are equal."""
    for override in varied:
        if not override.is_choice_sweep():
            continue
        values = list(override.sweep_iterator())
        texts = str(override.input_line).partition("=")[2].split(",")
        if len(texts) != len(values):  # one with a comma in it
            texts = list(map(str, values))
        alike: dict[tuple[str, object], list[str]] = {}
        for value, text in zip(values, texts, strict=True):
            alike.setdefault(_kind_and_value(value), []).append(text.strip())
        for same in (same for same in alike.values() if len(same) > 1):
            name = override.get_key_element().lstrip("+~")
            yield f"{name}: {', '.join(same)} are equal, so that these runs are one: leave all but one out"


def _kind_and_value(value: Any) -> tuple[str, object]:
    """Return what equal values share: 1 and 1.0 are equal, and so are a text and the same one in quotes."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number", float(value)
    return type(value).__name__ if isinstance(value, bool) else "text", str(getattr(value, "text", value))


def _as_typed(config: DictConfig) -> list[str]:
    """Return the overrides unresolved: ``${.x}`` in one is a neighbour of the setting, not of this list."""
    return cast(list[str], OmegaConf.to_container(config.hydra.overrides.task, resolve=False))


def _combinations(varied: list[Override]) -> int | None:
    """Return how many there are; None where only the sweeper knows (a glob, an interval)."""
    try:
        return prod(sum(1 for _ in override.sweep_iterator()) for override in varied)
    except HydraException:
        return None


# The log of a job: conf/hydra/job_logging.


class OthersErrors(logging.Filter):
    """Pass what no handler of Flower's has shown, nor a line of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is of another library."""
        return record.name.partition(".")[0] not in ("flwr", "baselines")


@contextlib.contextmanager
def closing_job_log() -> Iterator[None]:
    """Close what Hydra has opened for a job's log, for a process that goes on after the command."""
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        yield
    finally:
        for handler in [handler for handler in root.handlers if handler not in before]:
            root.removeHandler(handler)
            handler.close()


@contextlib.contextmanager
def without_hydras_lines() -> Iterator[None]:
    """Let Hydra raise what ended a job without printing "Error executing job with overrides"."""
    announcing: property = vars(JobReturn)["return_value"]
    JobReturn.return_value = property(_returned, announcing.fset)  # type: ignore[method-assign,assignment]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "provider=hydra.searchpath")  # the line of ours says it
            yield
    finally:
        JobReturn.return_value = announcing  # type: ignore[method-assign,assignment]


def _returned(self: JobReturn) -> object:
    """Return what a job returned, or raise what it raised."""
    assert self.status is not JobStatus.UNKNOWN
    if self.status is JobStatus.FAILED:
        raise self._return_value
    return self._return_value


def is_search(settings: HydraConf) -> bool:
    """Say whether a sweeper looks for the best; Hydra's own takes all that there is."""
    return settings.mode == RunMode.MULTIRUN and not settings.sweeper._target_.endswith(".BasicSweeper")


def run_prefix() -> str:
    """Return what this run's lines begin with where its launcher may run others beside it, else nothing."""
    settings = HydraConfig.get() if HydraConfig.initialized() else None
    if settings is None or settings.mode != RunMode.MULTIRUN:
        return ""
    return f"run {settings.job.num + 1}: " if _is_parallel(settings) else ""


def _is_parallel(settings: Any) -> bool:
    return not settings.launcher._target_.endswith(".BasicLauncher")


def check_direction(settings: HydraConf, objective: str, lowers: bool) -> None:
    """Refuse a search for the worst, as of the greatest loss.

    Raises
    ------
    UserError : where less of the objective is better (``lowers``) and more is looked for, or the reverse
    """
    direction = str(settings.sweeper.get("direction", "")).rpartition(".")[2].lower()
    wanted = "minimize" if lowers else "maximize"
    if is_search(settings) and direction in ("minimize", "maximize") and direction != wanted:
        raise UserError(
            f"objective={objective} with hydra.sweeper.direction={direction} looks for the worst: set "
            f"hydra.sweeper.direction={wanted}"
        )


def check_folder(settings: HydraConf) -> None:
    """Refuse a folder that Hydra does not read: it has one setting for a run, and one for a sweep.

    Raises
    ------
    UserError : where the other one is given alone
    """
    written = OmegaConf.to_container(settings.overrides, resolve=False)["hydra"]  # type: ignore[call-overload,index]
    given = {override.lstrip("+").partition("=")[0] for override in written}
    read, other, how = "hydra.run.dir", "hydra.sweep.dir", "without"
    if settings.mode == RunMode.MULTIRUN:
        read, other, how = other, read, "with"
    if other in given and read not in given:
        raise UserError(f"{other} is not read {how} -m: set {read}")
