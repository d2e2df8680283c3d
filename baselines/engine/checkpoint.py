"""Checkpoints: a run that was killed goes on from where it stood, to the same result.

``<run folder>/checkpoint/latest.pt`` holds all that the rounds to come depend on: the model, the strategy's
state (of its parts, of its groups), the nodes' states, and how much of metrics.csv had been written. There
is no random state among it: every draw has a generator of its own, named by seed, round and partition.
A checkpoint is written as a new file that then takes the old one's name, so one of the two is always whole.
"""

import os
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable
from zipfile import BadZipFile, ZipFile

import torch
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp import Grid

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.identity import identity

from . import environment
from .records import packed, unpacked

LATEST = Path("checkpoint") / "latest.pt"
logger = getLogger("flwr")


@runtime_checkable
class GivesNodeStates(Protocol):
    """A grid whose nodes' states can be taken and given back."""

    def node_states(self) -> dict[int, RecordDict]:
        """Return what each node keeps, by partition id."""

    def load_node_states(self, states: dict[int, RecordDict]) -> None:
        """Give each node what it kept."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A run after so many rounds.

    Parameters
    ----------
    identity : of the run, see :mod:`baselines.experiment.identity`
    server_round : the rounds that are done
    arrays : w[t]
    strategy : the strategy's ``state_dict``
    nodes : what each node keeps, by partition id; None where the runtime does not tell
    metrics_size : bytes of metrics.csv
    wall_seconds : time that the run has taken
    resumed : the rounds after which a process took it up again
    metrics_sum : checksum of those bytes; empty in a checkpoint of an earlier version
    """

    identity: str
    server_round: int
    arrays: ArrayRecord
    strategy: dict[str, Any]
    nodes: dict[int, RecordDict] | None
    metrics_size: int
    wall_seconds: float
    resumed: tuple[int, ...] = ()
    metrics_sum: str = ""

    def save(self, folder: Path) -> None:
        """Write the checkpoint of the run in ``folder``, in the place of its last.

        Raises
        ------
        OSError : when the disk is full; the last one stays
        """
        target = folder / LATEST
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(".tmp")
        fields = {name: packed(getattr(self, name)) for name in self.__dataclass_fields__}
        try:
            with environment.naming(target), open(fresh, "wb") as file:
                _write(fields, file)
            os.replace(fresh, target)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise


def load(folder: Path) -> Checkpoint | None:
    """Return the checkpoint of the run in ``folder``, or None.

    Raises
    ------
    UserError : when its file is damaged
    """
    path = folder / LATEST
    if not path.exists():
        return None
    try:
        with ZipFile(path) as archive:  # whose sums torch does not check
            if damaged := archive.testzip():
                raise BadZipFile(damaged)
        fields = torch.load(path, weights_only=True)
        return Checkpoint(**{name: unpacked(value) for name, value in fields.items()})
    except Exception as error:  # torch's, pickle's, zip's
        raise UserError(f"{path} is damaged: start again with resume=false") from error


def _write(fields: dict[str, Any], file: IO[bytes]) -> None:
    """Save the fields, on the disk when it returns."""
    try:
        torch.save(fields, file)
    except RuntimeError as error:  # torch hides why it could not write
        raise error.__context__ or error from None
    file.flush()
    os.fsync(file.fileno())


def discard(folder: Path) -> None:
    """Remove the checkpoint of a run that starts from the beginning."""
    (folder / LATEST).unlink(missing_ok=True)


# ---- what a user is told -------------------------------------------------------------------------


def check(this: Experiment, gives_node_states: bool) -> None:
    """Raise ``UserError`` when checkpoints are asked for that could not be resumed."""
    every = this.cfg.checkpoint_every
    if not isinstance(every, int) or every < 0:
        raise UserError(f"checkpoint_every={every} is out of range: expected rounds, or 0 for none")
    if every == 0:
        return
    if not this.prototype.resumable:
        raise UserError(
            f"checkpoint_every={every}: {this.prototype.name} has no state_dict to continue from; "
            "set checkpoint_every=0"
        )
    if this.nodes_remember and not gives_node_states:
        raise UserError(
            f"checkpoint_every={every}: the nodes keep a state of their own (SCAFFOLD, or "
            "client.keep_optimizer) that this runtime cannot give back; use runtime=inline, or "
            "checkpoint_every=0"
        )


def to_resume(this: Experiment, folder: Path, grid: Grid) -> Checkpoint | None:
    """Return what ``resume=true`` continues from; None to start from the beginning.

    Raises
    ------
    UserError : when what is there belongs to another run, or lacks what this one needs
    """
    check(this, isinstance(grid, GivesNodeStates))
    saved = load(folder) if this.cfg.resume else None
    if saved is None:
        return None
    if not _is_begun_by(this, saved):
        raise UserError(_another(folder / LATEST))
    if this.nodes_remember and saved.nodes is None:
        raise UserError(f"{folder / LATEST} lacks the nodes' own states: start again with resume=false")
    metrics = folder / "metrics.csv"
    if not _has_rows(metrics, saved.metrics_size):
        raise UserError(f"{metrics} has lost rows since the checkpoint: start again with resume=false")
    if saved.metrics_sum and saved.metrics_sum != environment.checksum(metrics, saved.metrics_size):
        raise UserError(f"{metrics} has changed since the checkpoint: start again with resume=false")
    return saved


def finished(this: Experiment, folder: Path) -> bool:
    """Say whether ``folder`` holds this run, finished; one of fewer rounds is its beginning.

    Raises
    ------
    UserError : when it holds another finished run, or left no checkpoint to go on from
    """
    told = environment.environment(folder)
    if told.get("status") != "finished":
        return False
    if told.get("identity") == identity(this.cfg):
        if reason := environment.damage(folder):
            logger.warning("%s: %s; it runs again, from its checkpoint if it left one", folder, reason)
        return reason is None
    saved = load(folder)
    if saved is None or not _is_begun_by(this, saved):
        raise UserError(_another(folder / "environment.json"))
    return False


def _has_rows(metrics: Path, count: int) -> bool:
    """Say whether metrics.csv has its first ``count`` bytes, and none of them lost to a fallen machine."""
    if environment.size(metrics) < count:
        return False
    with open(metrics, "rb") as file:
        return b"\0" not in file.read(count)


def _is_begun_by(this: Experiment, saved: Checkpoint) -> bool:
    """Say whether a checkpoint is one of this run, or the last of the same run with fewer rounds."""
    shorter = identity(this.cfg, min(saved.server_round, this.cfg.rounds))
    return saved.identity in (identity(this.cfg), shorter)


def _another(path: Path) -> str:
    return (
        f"{path} is of a run with another configuration or other versions (one of fewer rounds goes on if "
        "it left a checkpoint): choose another folder (hydra.run.dir=...), or start again with resume=false"
    )
