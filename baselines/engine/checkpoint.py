"""Checkpoints: an interrupted run resumes with exactly the same numbers.

``<run folder>/checkpoint/latest.pt`` holds everything that later rounds depend on: the model, the
state of the strategy, its parts and groups, the nodes' states, and the size of metrics.csv. It needs no
random state: every draw has its own generator, seeded by seed, round and partition. A checkpoint is written
to a new file, which then replaces the old one: a complete file always exists.
"""

import contextlib
import os
import shutil
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from torch import Tensor

from baselines.errors import UserError
from baselines.experiment.messages import warn_once
from strategies.core.strategy import BaseStrategy
from strategies.shared.arrays import values_of

from . import environment

# Flower's records as plain containers of tensors, which torch reads without running code.


RECORDS: dict[str, Any] = {
    "ArrayRecord": ArrayRecord,
    "ConfigRecord": ConfigRecord,
    "MetricRecord": MetricRecord,
    "RecordDict": RecordDict,
}


def pack_value(value: Any) -> Any:
    """Convert nested dicts, lists, records and tensors to such plain containers."""
    if isinstance(value, Array):
        return values_of(value).cpu()
    if isinstance(value, Tensor):
        return value.cpu()  # a run may resume on a machine without an accelerator
    if type(value).__name__ in RECORDS:
        return {type(value).__name__: {name: pack_value(item) for name, item in value.items()}}
    if isinstance(value, dict):
        return {"dict": {key: pack_value(item) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        return type(value)(pack_value(item) for item in value)
    return value


def unpack_value(value: Any) -> Any:
    """Undo :func:`pack_value`."""
    if isinstance(value, dict):
        ((kind, items),) = value.items()
        content = {key: unpack_value(item) for key, item in items.items()}
        if kind == "ArrayRecord":
            return ArrayRecord({name: Array(tensor.numpy()) for name, tensor in content.items()})
        return RECORDS[kind](content) if kind in RECORDS else content
    if isinstance(value, list | tuple):
        return type(value)(unpack_value(item) for item in value)
    return value


LATEST_CHECKPOINT = Path("checkpoint") / "latest.pt"
RESTART_ADVICE = "start again with resume=false"
EARLIER_CHECKPOINT = "checkpoint/round-{:06}.pt"  # by the rounds that are done, where several are kept
EARLIER_CHECKPOINTS = "checkpoint/round-*.pt"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a run after some rounds.

    Parameters
    ----------
    identity : of the run, see :mod:`baselines.experiment.identity`
    server_round : number of completed rounds
    arrays : w[t]
    strategy : the strategy's ``state_dict``
    nodes : node states by partition id; None where the runtime cannot read them
    metrics_size : bytes of metrics.csv
    wall_seconds : duration of the run so far
    resumed : the rounds after which the run was resumed
    metrics_sum : checksum of those bytes
    rounds : number of rounds requested
    """

    identity: str
    server_round: int
    arrays: ArrayRecord
    strategy: dict[str, Any]
    nodes: dict[int, RecordDict] | None
    metrics_size: int
    wall_seconds: float
    resumed: tuple[int, ...]
    metrics_sum: str
    rounds: int

    def save(self, folder: Path, keep: int = 1) -> None:
        """Write this checkpoint into the run's ``folder``, replacing the latest.

        ``keep`` is how many remain, this one included; above 1, each also has a file named by its round.

        Raises
        ------
        OSError : when the disk is full; the previous checkpoint remains
        """
        target = folder / LATEST_CHECKPOINT
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(".tmp")
        fields = {name: pack_value(getattr(self, name)) for name in self.__dataclass_fields__}
        try:
            with environment.name_file_in_errors(target), open(fresh, "wb") as file:
                _write(fields, file)
            if keep > 1:
                self._name(fresh, folder)
            os.replace(fresh, target)
            for old in _earlier(folder)[keep if keep > 1 else 0 :]:
                old.unlink()
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def restore(self, strategy: BaseStrategy) -> None:
        """Load the saved state into a strategy.

        Raises
        ------
        UserError : when another version of the strategy saved it
        """
        try:
            strategy.load_state_dict(self.strategy)
        except KeyError as error:
            lack = f"{LATEST_CHECKPOINT} lacks {error} of {strategy.name}"
            raise UserError(f"{lack}, so it is of another version: {RESTART_ADVICE}") from error

    def _name(self, fresh: Path, folder: Path) -> None:
        """Name a checkpoint by its round; delete those of later rounds, which will be repeated."""
        named = folder / EARLIER_CHECKPOINT.format(self.server_round)
        for path in _earlier(folder):
            if path.name >= named.name:
                path.unlink()
        try:
            os.link(fresh, named)
        except OSError:  # the file system has no hard links
            shutil.copyfile(fresh, named)


def load(folder: Path) -> Checkpoint | None:
    """Return the checkpoint of the run in ``folder``, or None.

    Raises
    ------
    UserError : when its file is damaged
    """
    paths = [path for path in (folder / LATEST_CHECKPOINT, *_earlier(folder)) if path.exists()]
    for path in paths[:-1]:
        with contextlib.suppress(UserError):
            return _read(path)
        warn_once(f"{path} is damaged: the checkpoint before it is taken")
    return _read(paths[-1]) if paths else None


def _earlier(folder: Path) -> list[Path]:
    """Return the checkpoints that are named by their rounds, the latest first."""
    return sorted(folder.glob(EARLIER_CHECKPOINTS), reverse=True)


def _read(path: Path) -> Checkpoint:
    try:
        with ZipFile(path) as archive:  # torch does not verify the checksums
            if damaged := archive.testzip():
                raise BadZipFile(damaged)
        fields = {name: unpack_value(value) for name, value in torch.load(path, weights_only=True).items()}
    except Exception as error:  # torch's, pickle's, zip's
        raise UserError(f"{path} is damaged: {RESTART_ADVICE}") from error
    if set(fields) != set(Checkpoint.__dataclass_fields__):
        raise UserError(f"{path} is of another version: {RESTART_ADVICE}")
    return Checkpoint(**fields)


def _write(fields: dict[str, Any], file: IO[bytes]) -> None:
    """Save the fields; they are on disk when this returns."""
    try:
        torch.save(fields, file)
    except RuntimeError as error:  # torch hides why it could not write
        raise error.__context__ or error from None
    file.flush()
    os.fsync(file.fileno())


# State that a user's own strategy keeps between rounds, and that no checkpoint would hold.


UNSAVED_STATE_ADVICE = "which its state_dict does not hold: give it state_dict and load_state_dict, or set"


def find_unsaved_fields(strategy: Any) -> list[str]:
    """Return the fields that the suite's ``state_dict`` does not hold."""
    suite = _saved_by(strategy)
    held = {field.name for field in fields(suite)} if suite else set()
    return [field.name for field in fields(strategy) if suite and not field.init and field.name not in held]


class UndeclaredStateCheck:
    """Detect attributes set during a round that are not fields, so that no checkpoint holds them.

    Values of a ``cached_property`` are ignored: they are recomputed.

    Parameters
    ----------
    strategy : before its first round
    """

    def __init__(self, strategy: BaseStrategy) -> None:
        self.strategy: Any = strategy
        self._before = self._undeclared()

    def check(self) -> None:
        """Raise ``UserError`` if a round has set one: a resumed run would lack it."""
        then = self._before
        now = self._undeclared()
        if lost := [name for name, value in now.items() if name not in then or value is not then[name]]:
            named = f"{self.strategy.name} keeps {', '.join(lost)}"
            raise UserError(f"{named}, {UNSAVED_STATE_ADVICE} checkpoint_every=0")

    def _undeclared(self) -> dict[str, object]:
        suite = _saved_by(self.strategy)
        if suite is None or type(self.strategy) is suite:
            return {}
        known = {field.name for field in fields(self.strategy)}
        attributes = vars(self.strategy).items()
        return {
            name: value for name, value in attributes if name not in known and not self._is_computed(name)
        }

    def _is_computed(self, name: str) -> bool:
        return isinstance(getattr(type(self.strategy), name, None), cached_property)


def _saved_by(strategy: Any) -> Any:
    """Return the suite's class that a strategy extends, if it has the suite's ``state_dict``; else None."""
    kinds = type(strategy).__mro__
    saving = next(kind for kind in kinds if "state_dict" in vars(kind))
    suite = next(kind for kind in kinds if kind.__module__.startswith("strategies."))
    whole = saving.__module__.startswith("strategies.") and is_dataclass(strategy) and is_dataclass(suite)
    return suite if whole else None
