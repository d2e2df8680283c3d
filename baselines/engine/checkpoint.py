"""Checkpoints: a run that was killed goes on from where it stood, to the same result.

``<run folder>/checkpoint/latest.pt`` holds all that the rounds to come depend on: the model, the strategy's
state (of its parts, of its groups), the nodes' states, and how much of metrics.csv had been written. There
is no random state among it: every draw has a generator of its own, named by seed, round and partition.
A checkpoint is written as a new file that then takes the old one's name, so one of the two is always whole.
"""

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import torch
from flwr.app import ArrayRecord, RecordDict

from baselines.errors import UserError
from baselines.experiment.once import warn_once

from . import environment
from .records import packed, unpacked

LATEST = Path("checkpoint") / "latest.pt"
EARLIER = "checkpoint/round-{:06}.pt"  # by the rounds that are done, where several are kept


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
    rounds : that were asked for; 0 in a checkpoint of an earlier version
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
    rounds: int = 0

    def save(self, folder: Path, keep: int = 1) -> None:
        """Write the checkpoint of the run in ``folder``, in the place of its last.

        ``keep`` is how many stay, the last among them; the others are named by their rounds.

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
            if keep > 1:
                self._name(fresh, folder)
            os.replace(fresh, target)
            for old in _earlier(folder)[keep if keep > 1 else 0 :]:
                old.unlink()
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def _name(self, fresh: Path, folder: Path) -> None:
        """Give a checkpoint its second name, and take away those of later rounds, which are to be anew."""
        named = folder / EARLIER.format(self.server_round)
        for path in _earlier(folder):
            if path.name >= named.name:
                path.unlink()
        try:
            os.link(fresh, named)
        except OSError:  # of a file system without links
            shutil.copyfile(fresh, named)


def load(folder: Path) -> Checkpoint | None:
    """Return the checkpoint of the run in ``folder``, or None.

    Raises
    ------
    UserError : when its file is damaged
    """
    paths = [path for path in (folder / LATEST, *_earlier(folder)) if path.exists()]
    for path in paths[:-1]:
        with contextlib.suppress(UserError):
            return _read(path)
        warn_once(f"{path} is damaged: the checkpoint before it is taken")
    return _read(paths[-1]) if paths else None


def _earlier(folder: Path) -> list[Path]:
    """Return the checkpoints that are named by their rounds, the latest first."""
    return sorted((folder / LATEST).parent.glob("round-*.pt"), reverse=True)


def _read(path: Path) -> Checkpoint:
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
    """Remove the checkpoints of a run that starts from the beginning."""
    for path in (folder / LATEST, *_earlier(folder)):
        path.unlink(missing_ok=True)
