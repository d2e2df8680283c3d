"""Checkpoints: a killed run resumes to the same result.

``<run folder>/checkpoint/latest.pt`` holds all that the rounds to come depend on: the model, the strategy's
state (of its parts, of its groups), the nodes' states, and how much of metrics.csv had been written. There
is no random state among it: every draw has a generator of its own, named by seed, round and partition.
A checkpoint is written as a new file that then takes the old one's name, so one of the two is always whole.
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


RECORDS = {record.__name__: record for record in (ArrayRecord, ConfigRecord, MetricRecord, RecordDict)}


def packed(value: Any) -> Any:
    """Return a value made of dicts, lists, records and tensors in that form."""
    if isinstance(value, Array):
        return values_of(value).cpu()
    if isinstance(value, Tensor):
        return value.cpu()  # a run may go on where there is no accelerator
    if type(value).__name__ in RECORDS:
        return {type(value).__name__: {name: packed(item) for name, item in value.items()}}
    if isinstance(value, dict):
        return {"dict": {key: packed(item) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        return type(value)(packed(item) for item in value)
    return value


def unpacked(value: Any) -> Any:
    """Return what was packed."""
    if isinstance(value, dict):
        ((kind, items),) = value.items()
        content = {key: unpacked(item) for key, item in items.items()}
        if kind == "ArrayRecord":
            return ArrayRecord({name: Array(tensor.numpy()) for name, tensor in content.items()})
        return RECORDS[kind](content) if kind in RECORDS else content
    if isinstance(value, list | tuple):
        return type(value)(unpacked(item) for item in value)
    return value


LATEST = Path("checkpoint") / "latest.pt"
AGAIN = "start again with resume=false"
EARLIER = "checkpoint/round-{:06}.pt"  # by the rounds that are done, where several are kept
EARLIER_ONES = "checkpoint/round-*.pt"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A run after a number of rounds.

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
    metrics_sum : checksum of those bytes
    rounds : that were asked for
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
        """Write the checkpoint of the run in ``folder``, in place of its last.

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

    def restore(self, strategy: BaseStrategy) -> None:
        """Give a strategy its state.

        Raises
        ------
        UserError : when it is of another version of the strategy
        """
        try:
            strategy.load_state_dict(self.strategy)
        except KeyError as error:
            line = f"{LATEST} lacks {error} of {strategy.name}, so it is of another version: {AGAIN}"
            raise UserError(line) from error

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
    return sorted(folder.glob(EARLIER_ONES), reverse=True)


def _read(path: Path) -> Checkpoint:
    try:
        with ZipFile(path) as archive:  # whose sums torch does not check
            if damaged := archive.testzip():
                raise BadZipFile(damaged)
        fields = {name: unpacked(value) for name, value in torch.load(path, weights_only=True).items()}
    except Exception as error:  # torch's, pickle's, zip's
        raise UserError(f"{path} is damaged: {AGAIN}") from error
    if set(fields) != set(Checkpoint.__dataclass_fields__):
        raise UserError(f"{path} is of another version: {AGAIN}")
    return Checkpoint(**fields)


def _write(fields: dict[str, Any], file: IO[bytes]) -> None:
    """Save the fields, on the disk when it returns."""
    try:
        torch.save(fields, file)
    except RuntimeError as error:  # torch hides why it could not write
        raise error.__context__ or error from None
    file.flush()
    os.fsync(file.fileno())


# Own state: what a strategy of the user's own keeps from round to round, and no checkpoint would hold.


WHAT_TO_DO = "which its state_dict does not hold: give it state_dict and load_state_dict, or set"


def unsaved(strategy: Any) -> list[str]:
    """Return the fields that the suite's ``state_dict`` does not hold."""
    suite = _saved_by(strategy)
    held = {field.name for field in fields(suite)} if suite else set()
    return [field.name for field in fields(strategy) if suite and not field.init and field.name not in held]


class UndeclaredStateCheck:
    """The attributes that are no fields: they are seen when they are set, in the first round or later.

    What a ``cached_property`` holds is none of them: it is computed again.

    Parameters
    ----------
    strategy : as it is before its first round
    """

    def __init__(self, strategy: BaseStrategy) -> None:
        self.strategy: Any = strategy
        self._before = self._undeclared()

    def check(self) -> None:
        """Raise ``UserError`` where a round has set one: what resumes would go on without it."""
        then = self._before
        now = self._undeclared()
        if lost := [name for name, value in now.items() if name not in then or value is not then[name]]:
            named = f"{self.strategy.name} keeps {', '.join(lost)}"
            raise UserError(f"{named}, {WHAT_TO_DO} checkpoint_every=0")

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
    """Return the suite's class that a strategy is of, where the ``state_dict`` is the suite's."""
    kinds = type(strategy).__mro__
    saving = next(kind for kind in kinds if "state_dict" in vars(kind))
    suite = next(kind for kind in kinds if kind.__module__.startswith("strategies."))
    whole = saving.__module__.startswith("strategies.") and is_dataclass(strategy) and is_dataclass(suite)
    return suite if whole else None
