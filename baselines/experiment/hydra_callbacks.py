"""Hydra's callbacks, its job log, and its mode: one run, a sweep, or a search."""

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
    """The progress of a sweep in this process.

    Parameters
    ----------
    total : how many runs it has; None where only the sweeper knows
    number : of the current run, from 0
    seconds, runs : duration and number of the runs done by this process
    """

    total: int | None
    number: int = 0
    seconds: float = 0.0
    runs: float = 0.0

    def count(self, seconds: float, share: float) -> None:
        """Count a run that has ended after a share of its rounds."""
        self.seconds, self.runs = self.seconds + seconds, self.runs + share

    def seconds_left(self, seconds: float, share: float) -> float | None:
        """Estimate the time left, given that the current run has done a share in ``seconds``."""
        done = self.runs + share
        left = (self.total or 0) - self.number - share
        return (self.seconds + seconds) / done * left if done else None


_sweep: Sweep | None = None  # global, as Hydra creates the callback and gives no access to it


def current_sweep() -> Sweep | None:
    """Return the sweep whose runs this process does in turn; None outside a sweep."""
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
        """Count the runs: the sweeper's number of trials, or all combinations of swept values.

        Save the requested overrides, by which run folders are named: not every sweeper saves them.
        """
        varied = swept(config.hydra)
        self.swept = {override.get_key_element() for override in varied}
        self.total = config.hydra.sweeper.get("n_trials") or _combinations(varied)
        self.sweeping = True
        set_sweep(Sweep(self.total))
        for line in equal_values(varied):
            Console(soft_wrap=True, highlight=False, markup=False).print(line)
        with contextlib.suppress(OSError):  # Hydra reports it
            folder = Path(config.hydra.sweep.dir)
            folder.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(config, folder / MULTIRUN)
            if _is_parallel(config.hydra):
                EndedRuns(folder / ENDED_RUNS_FILE, self.total).follow()

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the run's number, and its values of the swept settings."""
        if not self.sweeping:
            return
        own = [text for text in _as_typed(config) if text.partition("=")[0] in self.swept]
        console = Console(soft_wrap=True, highlight=False, markup=False)
        of = f" of {self.total}" if self.total else ""
        console.print(f"run {config.hydra.job.num + 1}{of}: {' '.join(own) or 'the only one'}")
        if _sweep:
            _sweep.number = config.hydra.job.num

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Report the end of a run to the process that started the sweep, possibly another one."""
        if self.sweeping and _is_parallel(config.hydra):
            how = "finished" if job_return.status is JobStatus.COMPLETED else "failed"
            with (
                contextlib.suppress(OSError),
                (Path(config.hydra.sweep.dir) / ENDED_RUNS_FILE).open("a") as file,
            ):
                file.write(f"run {config.hydra.job.num + 1} {how}\n")

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Forget the sweep: this process may continue with something else."""
        set_sweep(None)
        if EndedRuns.current:
            EndedRuns.current.stop()


ENDED_RUNS_FILE = ".ended_runs"  # in the sweep's folder while it runs: a line for each run that has ended


class EndedRuns:
    """Print a line for each run that ends in another process, read from a file.

    Parameters
    ----------
    path : the file, which all processes must see
    total : how many runs there are; None where only the sweeper knows
    """

    current: "EndedRuns | None" = None  # of this process; Hydra copies the callback to others

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
            stops = self._stop.wait(POLL_SECONDS)  # first, so that the file is read once more
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


POLL_SECONDS = 0.5  # seconds


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def set_sweep(sweep: Sweep | None) -> None:
    """Let :func:`current_sweep` return it."""
    global _sweep
    _sweep = sweep


def equal_values(varied: list[Override]) -> Iterator[str]:
    """Yield a line for each swept setting that has equal values."""
    for override in varied:
        if not override.is_choice_sweep():
            continue
        values = list(override.sweep_iterator())
        texts = str(override.input_line).partition("=")[2].split(",")
        if len(texts) != len(values):  # a value with a comma in it
            texts = list(map(str, values))
        alike: dict[tuple[str, object], list[str]] = {}
        for value, text in zip(values, texts, strict=True):
            alike.setdefault(_kind_and_value(value), []).append(text.strip())
        for same in (same for same in alike.values() if len(same) > 1):
            name = override.get_key_element().lstrip("+~")
            yield f"{name}: {', '.join(same)} are equal, so that these runs are one: leave all but one out"


def _kind_and_value(value: Any) -> tuple[str, object]:
    """Return a key that equal values share: 1 and 1.0 are equal, as are a text with and without quotes."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number", float(value)
    return type(value).__name__ if isinstance(value, bool) else "text", str(getattr(value, "text", value))


def _as_typed(config: DictConfig) -> list[str]:
    """Return the overrides unresolved: ``${.x}`` refers to the setting's neighbour, not to this list's."""
    return cast(list[str], OmegaConf.to_container(config.hydra.overrides.task, resolve=False))


def _combinations(varied: list[Override]) -> int | None:
    """Return the number of combinations; None where only the sweeper knows it (a glob, an interval)."""
    try:
        return prod(sum(1 for _ in override.sweep_iterator()) for override in varied)
    except HydraException:
        return None


# The log of a job: conf/hydra/job_logging.


class OthersErrors(logging.Filter):
    """Pass only other libraries' records: Flower's and this project's are already shown."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is another library's."""
        return record.name.partition(".")[0] not in ("flwr", "baselines")


@contextlib.contextmanager
def closing_job_log() -> Iterator[None]:
    """Close the handlers of Hydra's job log, for a process that continues after the command."""
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
    JobReturn.return_value = property(_get_result, announcing.fset)  # type: ignore[method-assign,assignment]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "provider=hydra.searchpath")  # this project's error says it
            yield
    finally:
        JobReturn.return_value = announcing  # type: ignore[method-assign,assignment]


def _get_result(self: JobReturn) -> object:
    """Return what a job returned, or raise what it raised."""
    assert self.status is not JobStatus.UNKNOWN
    if self.status is JobStatus.FAILED:
        raise self._return_value
    return self._return_value


def is_search(settings: HydraConf) -> bool:
    """Say whether a sweeper searches for the best run; Hydra's own sweeper runs all combinations."""
    return settings.mode == RunMode.MULTIRUN and not settings.sweeper._target_.endswith(".BasicSweeper")


def run_prefix() -> str:
    """Return the prefix of this run's lines if its launcher may run others in parallel, else nothing."""
    settings = HydraConfig.get() if HydraConfig.initialized() else None
    if settings is None or settings.mode != RunMode.MULTIRUN:
        return ""
    return f"run {settings.job.num + 1}: " if _is_parallel(settings) else ""


def _is_parallel(settings: Any) -> bool:
    return not settings.launcher._target_.endswith(".BasicLauncher")


def check_direction(settings: HydraConf, objective: str, lowers: bool) -> None:
    """Refuse a search for the worst value, such as the greatest loss.

    Raises
    ------
    UserError : where a lower objective is better (``lowers``) and the search maximises it, or the reverse
    """
    direction = str(settings.sweeper.get("direction", "")).rpartition(".")[2].lower()
    expected = "minimize" if lowers else "maximize"
    if is_search(settings) and direction in ("minimize", "maximize") and direction != expected:
        raise UserError(
            f"objective={objective} with hydra.sweeper.direction={direction} looks for the worst: set "
            f"hydra.sweeper.direction={expected}"
        )


def check_folder(settings: HydraConf) -> None:
    """Refuse a folder setting that Hydra would ignore: a run and a sweep each have their own.

    Raises
    ------
    UserError : where only the other one is given
    """
    written = OmegaConf.to_container(settings.overrides, resolve=False)["hydra"]  # type: ignore[call-overload,index]
    keys = {override.lstrip("+").partition("=")[0] for override in written}
    read, other, how = "hydra.run.dir", "hydra.sweep.dir", "without"
    if settings.mode == RunMode.MULTIRUN:
        read, other, how = other, read, "with"
    if other in keys and read not in keys:
        raise UserError(f"{other} is not read {how} -m: set {read}")
