"""Seat: a worker's place in a Ray process, taken before it is known what the worker is for."""

from importlib import import_module
from typing import Any


class Seat:
    """Imports what a worker needs; becomes one when it is told what for."""

    def __init__(self) -> None:
        self._kind = import_module("baselines.runtimes.worker").Worker
        self._arguments: tuple[Any, ...] = ()
        self._worker: Any = None

    def __repr__(self) -> str:
        """Return what Ray calls it, where it repeats what it prints."""
        return "Worker"

    def take(self, *arguments: Any) -> None:
        """Note what the worker is for: its arguments, see :class:`~baselines.runtimes.worker.Worker`."""
        self._arguments = arguments

    def do(self, method: str, *told: Any) -> Any:
        """Let the worker do something, by its method's name; it is made when it first does."""
        if self._worker is None:
            self._worker = self._kind(*self._arguments)
        return getattr(self._worker, method)(*told)
