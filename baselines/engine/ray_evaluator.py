"""Evaluate on Ray workers, batch by batch, with a single process's result bit for bit."""

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, ClassVar

import torch
from flwr.app import ArrayRecord
from torch import Tensor

from baselines.errors import RunFailed
from baselines.experiment.experiment import Experiment
from baselines.grids.ray import StoredRecord
from baselines.grids.ray_pool import Dispatch, TaskGroup, WorkerTask
from clients.evaluation import average_sums, num_batches

from .evaluation import Evaluator, Metrics, Owners, select_examples

TASKS_PER_WORKER = 4  # roughly; small tasks let all workers end at about the same time


class RayEvaluator(Evaluator):
    """Evaluates models on workers that have nothing else to do.

    Parameters
    ----------
    experiment : whose examples they are
    dispatch : sends tasks to the workers
    """

    aside: ClassVar[bool] = True

    def __init__(self, experiment: Experiment, dispatch: Dispatch) -> None:
        super().__init__(experiment)
        self.dispatch = dispatch

    def evaluated(
        self, models: Sequence[ArrayRecord], split: str, owners: Owners
    ) -> Callable[[], list[Metrics]]:
        """Begin to evaluate models on ``test`` or ``validation``; return what waits for their metrics."""
        examples = [select_examples(self.experiment, split, owner) for owner in owners]
        dealt = [
            self._tasks(arrays, num_batches(held_out), len(models), "sums", split, owner)
            for arrays, held_out, owner in zip(models, examples, owners, strict=True)
        ]
        group = self.dispatch.add(chain(*dealt), aside=True)

        def wait() -> list[Metrics]:
            outcomes = zip(self._outcomes(dealt, group), examples, strict=True)
            return [average_sums(sums, len(held_out)) for sums, held_out in outcomes]

        return wait

    def compute_correctness(self, models: Sequence[ArrayRecord]) -> Tensor:
        batches = num_batches(self.experiment.validation_examples)
        dealt = [self._tasks(arrays, batches, len(models), "compute_correctness") for arrays in models]
        group = self.dispatch.add(chain(*dealt), aside=True)
        return torch.stack([torch.cat(parts) for parts in self._outcomes(dealt, group)])

    def _tasks(
        self, arrays: ArrayRecord, batches: int, models: int, method: str, *arguments: object
    ) -> list["Evaluating"]:
        """Return the tasks by which workers evaluate one of the models."""
        num_tasks = max(1, TASKS_PER_WORKER * len(self.dispatch.workers) // models)
        each = math.ceil(batches / num_tasks)
        stored = StoredRecord(arrays)
        return [
            Evaluating(stored, range(first, min(first + each, batches)), method, *arguments)
            for first in range(0, batches, each)
        ]

    def _outcomes(self, dealt: list[list["Evaluating"]], group: TaskGroup) -> list[list[Any]]:
        """Wait for each model's outcomes, one per batch."""
        self.dispatch.finish(group)
        return [list(chain.from_iterable(task.outcome() for task in tasks)) for tasks in dealt]


class Evaluating(WorkerTask):
    """Batches for a worker to evaluate a model on.

    Parameters
    ----------
    arrays : the model
    batches : indices of the batches
    method : name of the worker's method
    arguments : its further arguments
    """

    def __init__(self, arrays: StoredRecord, batches: range, method: str, *arguments: object) -> None:
        super().__init__()
        self.method, self.arguments = method, (arrays, batches, *arguments)
        self._outcome: list[Any] = []
        self._error: Exception | None = None

    def send(self, actor: Any) -> Any:
        """Have the worker evaluate."""
        return actor.do.remote(self.method, *self.arguments)

    def take(self, outcome: Any) -> None:
        """Keep the outcomes, one per batch."""
        self._outcome = outcome

    def raised(self, error: Exception) -> None:
        """Keep the error for :meth:`outcome` to raise."""
        self._error = error

    def lost(self, reason: str) -> None:
        """Keep an error that says why, for :meth:`outcome` to raise."""
        self._error = RunFailed(f"a model could not be evaluated: {reason}")

    def outcome(self) -> list[Any]:
        """Return the outcomes, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._outcome
