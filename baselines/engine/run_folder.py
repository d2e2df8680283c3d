"""RunFolder: the files of a run.

metrics.csv       tidy: round, split, model, metric, value; the rows of round r are measured after r rounds
config.yaml       the resolved configuration
environment.json  overrides, seed, versions, hardware, git commit, wall time, how it ended, whether nodes
                  train batched and why, peak memory of the accelerator, how steps were taken
figures/          test metrics and server step size by round
logs/             output of a deployment's processes
per_class.csv, confusion.csv: with ``evaluation.per_class``
model.safetensors with ``save``: the trained model; of several, a folder models/ checkpoint/       with
``checkpoint_every``: what ``resume=true`` continues from
"""

import contextlib
import csv
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from baselines.errors import RunDiverged, UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.validation import Logger

from .checkpoint import EARLIER_CHECKPOINTS, LATEST_CHECKPOINT, Checkpoint
from .environment import (
    DIVERGED,
    FINISHED,
    INTERRUPTED,
    ResourceUsage,
    checksum,
    checksums,
    name_file_in_errors,
    provenance,
    size,
    write_atomically,
)
from .metrics import COLUMNS, CONFUSION, PER_CLASS
from .saved_model import MODEL_FILE, MODELS_FOLDER, UNFINISHED_FOLDER

LOCK = ".lock"
OUTPUTS = "FLORILEGIUM_OUTPUTS"  # variable of a SuperLink: the folder below which submitted runs write
STALE_FILES = (
    str(LATEST_CHECKPOINT),
    EARLIER_CHECKPOINTS,
    MODEL_FILE,
    MODELS_FOLDER,
    UNFINISHED_FOLDER,
    PER_CLASS,
    CONFUSION,
)
OTHER_FOLDER_ADVICE = (
    "choose another folder (hydra.run.dir=..., in a sweep hydra.sweep.dir and .subdir, of submit --output)"
)
LOCK_SECONDS = 2.0  # seconds to wait for the lock: asking whether a folder is in use takes it for a moment


def outputs_folder() -> Path:
    """Return the folder below which submitted runs write: the operator's choice, else ``./outputs``."""
    return Path(os.environ.get(OUTPUTS) or "outputs").resolve()


@contextlib.contextmanager
def in_outputs() -> Iterator[None]:
    """Work in that folder, so that errors show a submitter only paths below it.

    Raises
    ------
    UserError : where it cannot be made
    """
    data = os.environ.get("FLORILEGIUM_DATA")
    if data:
        os.environ["FLORILEGIUM_DATA"] = str(Path(data).resolve())
    allowed = outputs_folder()
    try:
        allowed.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        line = f"the folder in which this SuperLink keeps runs cannot be made ({error.strerror})"
        raise UserError(f"{line}: tell its operator") from error
    with contextlib.chdir(allowed):
        yield


def resolve_output(output: str, run_id: int) -> Path:
    """Return the folder of a submitted run, which must lie below the one that the operator names.

    Parameters
    ----------
    output : as submitted, relative to the operator's folder or absolute; empty for the run's id
    run_id : Flower's

    Raises
    ------
    UserError : for a folder elsewhere, symbolic links followed
    """
    allowed = outputs_folder()
    folder = (allowed / (output or str(run_id))).resolve()
    if folder == allowed or not folder.is_relative_to(allowed):
        raise UserError(
            f"output={output} does not lie below the folder in which this SuperLink keeps runs: give a "
            "name, or a path below it"
        )
    return folder


class RunFolder:
    """One run's folder.

    Parameters
    ----------
    path : created when missing
    experiment : the experiment that runs
    """

    def __init__(self, path: Path, experiment: Experiment) -> None:
        self.path = path
        self.experiment = experiment
        self.begun = False  # whether a run of this process has written into it
        self._loggers: list[Logger] = experiment.loggers()

    def make(self) -> None:
        """Make the folder, where it is missing.

        Raises
        ------
        UserError : where that cannot be done; nothing has been computed yet
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(_describe_unusable(self.path, error)) from error

    def write(
        self, server_round: int, split: str, model: str, metrics: dict[str, float], is_one_of: bool = False
    ) -> None:
        """Append a row per metric to metrics.csv and log them; ``is_one_of``: the split has other models."""
        with name_file_in_errors(self._metrics), open(self._metrics, "a", newline="") as file:
            rows = [(server_round, split, model, name, value) for name, value in metrics.items()]
            csv.writer(file).writerows(rows)
        for logger in self._loggers:
            of = f"{split}/{model}" if is_one_of else split
            logger.write(server_round, {f"{of}/{name}": value for name, value in metrics.items()})

    def position(self) -> dict[str, Any]:
        """Return how far the run is on disk, as fields of :class:`Checkpoint`."""
        return {
            "identity": self.experiment.identity(),
            "metrics_size": size(self._metrics),
            "metrics_sum": checksum(self._metrics),
            "wall_seconds": time.time() - self._started,
            "resumed": self._resumed,
        }

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out of the folder; the lock ends at the latest with this process.

        Raises
        ------
        UserError : when another process runs in this folder, or it cannot be written into
        """
        self.make()
        lock = FileLock(self.path / LOCK, timeout=LOCK_SECONDS)
        try:
            lock.acquire()
        except Timeout as error:
            raise UserError(describe_use(self.path)) from error
        except OSError as error:
            raise UserError(_describe_unusable(self.path, error)) from error
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def running(
        self,
        saved: Checkpoint | None = None,
        describe: Callable[[], dict[str, Any]] = lambda: {"lost": 0},
        first: Mapping[str, Any] | None = None,
    ) -> Iterator[None]:
        """Prepare the folder, continuing from ``saved``; record how the run ended, even if it fails.

        ``describe`` returns further entries of environment.json at the end, such as how many messages were
        lost; ``first`` holds those that are known at the beginning. Enter it within :meth:`alone`.
        """
        for logger in self._loggers:  # first: if one fails, the folder is unchanged
            logger.begin(self.experiment, self.path, saved.server_round if saved else None)
        self._started = time.time() - (saved.wall_seconds if saved else 0)
        self._resumed = (*saved.resumed, saved.server_round) if saved else ()
        environment = provenance(self.experiment) | {"resumed": list(self._resumed)} | dict(first or {})
        used = ResourceUsage(self.experiment.device)
        status = INTERRUPTED
        # Before anything is touched: an earlier run's "finished" would outlive a kill.
        self._save(environment | {"status": "running"})
        self.begun = True
        try:
            self._lay_out(saved)
            yield
            status = FINISHED
        except RunDiverged:
            status = DIVERGED
            raise
        except Exception as error:
            status = f"failed: {error}"
            raise
        finally:
            end = {"status": status, "wall_seconds": time.time() - self._started} | describe()
            left = {"metrics_size": size(self._metrics), "checksums": checksums(self.path)}
            self._save(environment | used.describe() | end | left)
            for logger in self._loggers:
                logger.end(status)

    def _lay_out(self, saved: Checkpoint | None) -> None:
        """Cut metrics.csv back to the checkpoint, or begin a new one."""
        if saved:
            os.truncate(self._metrics, saved.metrics_size)
        else:
            self._discard()
            with name_file_in_errors(self._metrics), open(self._metrics, "w", newline="") as file:
                csv.writer(file).writerow(COLUMNS)
        with name_file_in_errors(self.path / "config.yaml"):
            (self.path / "config.yaml").write_text(self.experiment.configuration())

    def _discard(self) -> None:
        """Remove files of an earlier run that this one might not overwrite."""
        for pattern in STALE_FILES:
            for path in self.path.glob(pattern):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()

    @property
    def _metrics(self) -> Path:
        return self.path / "metrics.csv"

    def _save(self, environment: dict[str, Any]) -> None:
        write_atomically(self.path / "environment.json", json.dumps(environment, indent=2) + "\n")


def check_overwriting(experiment: Experiment, folder: Path) -> None:
    """Raise ``UserError`` where a run would be overwritten without ``resume=false``."""
    if experiment.settings.resume is None and has_trained(folder / "metrics.csv"):
        raise UserError(
            f"{folder} holds a run: resume=true leaves it alone or continues it, resume=false writes over "
            f"it; or {OTHER_FOLDER_ADVICE}"
        )


def has_trained(metrics: Path) -> bool:
    """Say whether metrics.csv has a row of a training round, which a new run would delete."""
    if not metrics.exists():
        return False
    with open(metrics, errors="replace") as lines:
        return any(not line.startswith(("round,", "0,")) for line in lines)


def is_in_use(folder: Path) -> bool:
    """Say whether a process is running in a run's folder."""
    if not (folder / LOCK).exists():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True


def describe_use(folder: Path) -> str:
    """Return the message that another process uses the folder."""
    return f"another process is running in {folder}: wait for it, or end it"


def _describe_unusable(folder: Path, error: OSError) -> str:
    return f"cannot write into {folder} ({error.strerror}): choose another folder"
