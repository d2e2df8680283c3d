"""RunFolder: the files of a run.

metrics.csv       tidy: round, split, model, metric, value; a row at round r is measured after r rounds
config.yaml       the resolved configuration
environment.json  overrides, seed, versions, hardware, git commit, wall time, how it ended, whether nodes
                  train batched and why, peak memory of the accelerator, how steps were taken
figures/          test metrics and server step size by round
logs/             what the processes of a deployment say
per_class.csv, confusion.csv: with ``evaluation.per_class``
model.safetensors with ``save``: the trained model
checkpoint/       with ``checkpoint_every``: what ``resume=true`` continues from
"""

import contextlib
import csv
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from baselines.errors import RunDiverged, UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.validation import Logger

from . import checkpoint, measures, saved_model
from .checkpoint import Checkpoint
from .environment import (
    DIVERGED,
    FINISHED,
    ResourceUsage,
    checksum,
    checksums,
    naming,
    provenance,
    size,
    write_atomically,
)
from .metrics import COLUMNS

LOCK = ".lock"
OUTPUTS = "FLORILEGIUM_OUTPUTS"  # variable of a SuperLink: the folder below which submitted runs write
PATIENCE = 2.0  # seconds to wait for the folder: who asks whether it is in use holds it for a moment


def outputs_folder() -> Path:
    """Return the folder below which submitted runs write: the operator's word, else ``outputs`` here."""
    return Path(os.environ.get(OUTPUTS) or "outputs").resolve()


@contextlib.contextmanager
def in_outputs() -> Iterator[None]:
    """Work in that folder: in errors, who submits a run reads paths below it, and no others.

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
    """Return the folder of a submitted run: below the one that the SuperLink's operator names, or refuse.

    Parameters
    ----------
    output : as submitted, relative to the operator's folder or the whole path; empty for the run's id
    run_id : Flower's

    Raises
    ------
    UserError : for a folder elsewhere, whatever links lead there
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
    this : the experiment that runs
    """

    def __init__(self, path: Path, this: Experiment) -> None:
        self.path = path
        self.this = this
        self.begun = False  # whether a run of this process has written into it
        self._loggers: list[Logger] = this.loggers()

    def make(self) -> None:
        """Make the folder, where it is missing.

        Raises
        ------
        UserError : where that cannot be done; nothing has been computed yet
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(_unfit(self.path, error)) from error

    def write(self, server_round: int, split: str, model: str, metrics: dict[str, float]) -> None:
        """Append one row per metric to metrics.csv."""
        with naming(self._metrics), open(self._metrics, "a", newline="") as file:
            rows = [(server_round, split, model, name, value) for name, value in metrics.items()]
            csv.writer(file).writerows(rows)
        for logger in self._loggers:
            named = {f"{split}/{model}/{name}": value for name, value in metrics.items()}
            logger.write(server_round, named)

    def position(self) -> dict[str, Any]:
        """Return how far the run has come on disk, as a :class:`Checkpoint` has it."""
        return {
            "identity": self.this.identity(),
            "metrics_size": size(self._metrics),
            "metrics_sum": checksum(self._metrics),
            "wall_seconds": time.time() - self._started,
            "resumed": self._resumed,
        }

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out of the folder; the lock ends with this process, however it ends.

        Raises
        ------
        UserError : when another process runs in this folder, or it cannot be written into
        """
        self.make()
        lock = FileLock(self.path / LOCK, timeout=PATIENCE)
        try:
            lock.acquire()
        except Timeout as error:
            raise UserError(taken(self.path)) from error
        except OSError as error:
            raise UserError(_unfit(self.path, error)) from error
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def running(
        self,
        saved: Checkpoint | None = None,
        told: Callable[[], dict[str, Any]] = lambda: {"lost": 0},
        first: Mapping[str, Any] | None = None,
    ) -> Iterator[None]:
        """Lay the folder out, from ``saved`` on; write down how the run ended, however it ends.

        ``told`` says at the end what else there is to know: how many messages were never answered because
        their workers died, and of a deployment who took part. ``first`` is what is known when it begins.
        To be entered within :meth:`alone`.
        """
        for logger in self._loggers:  # first: one that cannot leaves what is there
            logger.begin(self.this, self.path, saved.server_round if saved else None)
        self._started = time.time() - (saved.wall_seconds if saved else 0)
        self._resumed = (*saved.resumed, saved.server_round) if saved else ()
        environment = provenance(self.this) | {"resumed": list(self._resumed)} | dict(first or {})
        used = ResourceUsage(self.this.device)
        status = "interrupted"
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
            end = {"status": status, "wall_seconds": time.time() - self._started} | told()
            left = {"metrics_size": size(self._metrics), "checksums": checksums(self.path)}
            self._save(environment | used.told() | end | left)
            for logger in self._loggers:
                logger.end(status)

    def _lay_out(self, saved: Checkpoint | None) -> None:
        """Take metrics.csv back to the checkpoint; without one, begin it."""
        if saved:
            os.truncate(self._metrics, saved.metrics_size)
        else:
            checkpoint.discard(self.path)
            saved_model.discard(self.path)
            measures.discard_classes(self.path)
            with naming(self._metrics), open(self._metrics, "w", newline="") as file:
                csv.writer(file).writerow(COLUMNS)
        with naming(self.path / "config.yaml"):
            (self.path / "config.yaml").write_text(self.this.configuration())

    @property
    def _metrics(self) -> Path:
        return self.path / "metrics.csv"

    def _save(self, environment: dict[str, Any]) -> None:
        write_atomically(self.path / "environment.json", json.dumps(environment, indent=2) + "\n")


def in_use(folder: Path) -> bool:
    """Say whether a process is running in a run's folder."""
    if not (folder / LOCK).exists():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True


def taken(folder: Path) -> str:
    """Say so to the user of another process."""
    return f"another process is running in {folder}: wait for it, or end it"


def _unfit(folder: Path, error: OSError) -> str:
    return f"cannot write into {folder} ({error.strerror}): choose another folder"
