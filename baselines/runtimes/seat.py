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

    def unfit(self) -> str | None:
        """Become the worker; return what this machine lacks, None where it can answer."""
        self._worker = self._kind(*self._arguments)
        lacking: str | None = self._worker.unfit()
        return lacking

    def used(self) -> Any:
        """Let the worker say what it has used."""
        return self._worker.used()

    def answer(self, *told: Any) -> Any:
        """Let the worker answer messages."""
        return self._worker.answer(*told)

    def answer_folded(self, *told: Any) -> Any:
        """Let the worker answer messages with the mean of the models."""
        return self._worker.answer_folded(*told)

    def test_sums(self, *told: Any) -> Any:
        """Let the worker evaluate on the test set."""
        return self._worker.test_sums(*told)

    def validation_sums(self, *told: Any) -> Any:
        """Let the worker evaluate on the validation set."""
        return self._worker.validation_sums(*told)

    def right_on(self, *told: Any) -> Any:
        """Let the worker say what a model is right about."""
        return self._worker.right_on(*told)
