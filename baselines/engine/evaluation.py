"""Evaluator: how well models do on the examples that the server keeps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from statistics import fmean
from typing import Any, ClassVar

import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn

from baselines.errors import RunFailed
from baselines.experiment.experiment import Experiment
from baselines.grids.base import SuiteGrid
from baselines.grids.ray import Stored
from baselines.grids.ray_pool import Dispatch, Group, Task
from clients import Examples
from clients.evaluation import BATCH_SIZE, averaged, correct, evaluate, num_batches, predictions
from clients.methods.uga import full_gradient
from clients.round import load
from strategies.shared.arrays import to_array_record

from .loggers import Progress
from .metrics import OWN_GROUP, write_classes
from .run_folder import RunFolder
from .saved_model import ModelSaver, describe

Metrics = dict[str, float]
Owners = Sequence[int | None]  # for each model: whose own it is, None for that of several nodes


class Evaluator:
    """Evaluates models in this process.

    Parameters
    ----------
    this : whose examples they are
    """

    aside: ClassVar[bool] = False  # whether it evaluates while the next round trains

    def __init__(self, this: Experiment) -> None:
        self.this = this

    @cached_property
    def _model(self) -> nn.Module:
        return self.this.model()

    def evaluated(
        self, models: Sequence[ArrayRecord], split: str, owners: Owners
    ) -> Callable[[], list[Metrics]]:
        """Begin to evaluate models on ``test`` or ``validation``; return what waits for their metrics."""
        pairs = zip(models, owners, strict=True)
        found = [self._evaluated(arrays, split, owner) for arrays, owner in pairs]
        return lambda: found

    def predictions(self, models: Sequence[ArrayRecord], owners: Owners) -> list[tuple[Tensor, Tensor]]:
        """Return the test examples' labels and what each model takes them for, in this process."""
        found = []
        for arrays, owner in zip(models, owners, strict=True):
            load(self._model, arrays)
            found.append(predictions(self._model, kept(self.this, "test", owner)))
        return found

    def correctness_fn(self, models: Sequence[ArrayRecord]) -> Tensor:
        """Return whether each model classifies each validation example rightly, [models, V] of bools."""
        return torch.stack([self._right_on(arrays) for arrays in models])

    def gradient(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return the gradient of the loss on the validation examples; 0 for what is not trained."""
        load(self._model, arrays)
        task, named = self.this.dataset.task, self._model.named_parameters()
        slopes = full_gradient(self._model, self.this.validation_examples, task, BATCH_SIZE)
        found = dict(zip((name for name, p in named if p.requires_grad), slopes, strict=True))
        values = self._model.state_dict().items()
        return to_array_record({name: found.get(name, torch.zeros_like(value)) for name, value in values})

    def _evaluated(self, arrays: ArrayRecord, split: str, owner: int | None) -> Metrics:
        load(self._model, arrays)
        return evaluate(self._model, kept(self.this, split, owner), self.this.dataset.task)

    def _right_on(self, arrays: ArrayRecord) -> Tensor:
        load(self._model, arrays)
        examples = self.this.validation_examples
        return correct(self._model, examples, range(num_batches(examples)))


def kept(this: Experiment, split: str, owner: int | None) -> Examples:
    """Return the server's examples of ``test`` or ``validation`` for a model, of one node or of several."""
    if split == "validation":
        return this.validation_examples
    return this.test_examples if owner is None else this.holdings.own_test_examples(owner)


# ServerEvaluation: how well a run's models do on the examples that the server keeps, round after round.


Models = dict[str, ArrayRecord]


@dataclass(frozen=True)
class Pending:
    """Models that are being evaluated.

    Parameters
    ----------
    server_round : after which they are the strategy's
    models : by what the strategy calls them
    weights : how many nodes each is for
    on_nodes : how they did there; their metrics where the server has no test set
    waits : by split, what returns their metrics
    """

    server_round: int
    models: Models
    weights: list[int]
    on_nodes: Metrics
    waits: dict[str, Callable[[], list[Metrics]]]


class ServerEvaluation:
    """Evaluates, writes down, shows, and keeps the model that is asked for.

    Parameters
    ----------
    this : whose examples they are
    grid : whose workers evaluate, where it has any
    folder, progress : where the metrics go
    """

    def __init__(self, this: Experiment, grid: SuiteGrid, folder: RunFolder, progress: Progress) -> None:
        self.this, self.folder, self.progress = this, folder, progress
        self.evaluator = _evaluator_of(this, grid)
        save = this.settings.save
        self._keeper = ModelSaver(folder.path, save, describe(this) if save else None)
        self._pending: Pending | None = None
        self._mean: Metrics = {}  # of the last models; none where a resumed run had nothing left to do

    def begin(
        self, server_round: int, models: Models, weights: list[int], owners: Owners, on_nodes: Metrics
    ) -> None:
        """Begin to evaluate the models; where it costs no time, wait."""
        arrays, wanted = list(models.values()), {"test": len(self.this.test_examples) > 0}
        wanted["validation"] = self.this.settings.validates
        splits = [split for split, asked in wanted.items() if asked]
        waits = {split: self.evaluator.evaluated(arrays, split, owners) for split in splits}
        self._pending = Pending(server_round, models, weights, on_nodes, waits)
        if not self.evaluator.aside or not waits:
            self.finish()

    def finish(self) -> None:
        """Wait for the models that are evaluated, write down how well they do, show the mean over nodes."""
        if (pending := self._pending) is None:
            return
        self._pending = None
        means = {split: self._written(pending, split, wait()) for split, wait in pending.waits.items()}
        self._mean = means.get("test", pending.on_nodes)
        self._keeper.offer(pending.server_round, pending.models, self._mean)
        self.progress.show(pending.server_round, self._mean)

    def resume_from(self, server_round: int, models: Models) -> None:
        """Keep what is to be kept of a run that goes on, and may have kept something else."""
        self._keeper.resume_from(
            server_round, models, "test" if len(self.this.test_examples) else "node-test"
        )

    def end(self, server_round: int, models: Models, owners: Owners) -> None:
        """Keep the last models, and write down how they do on each class, where that is asked for."""
        self.finish()
        self._keeper.end(server_round, models, self._mean)
        if self.this.settings.evaluation.per_class:
            predicted = self.evaluator.predictions(list(models.values()), owners)
            write_classes(self.folder.path, list(models), predicted)

    def _written(self, pending: Pending, split: str, results: list[Metrics]) -> Metrics:
        """Write down the metrics of each model; return their mean over the nodes."""
        for name, metrics in zip(pending.models, results, strict=True):
            self.folder.write(pending.server_round, split, name, metrics)
        mean = results[0]
        if len(results) > 1:
            mean = {metric: fmean((r[metric] for r in results), pending.weights) for metric in mean}
            self.folder.write(pending.server_round, split, OWN_GROUP, mean)
        return mean


def _evaluator_of(this: Experiment, grid: SuiteGrid) -> Evaluator:
    """Return who evaluates: the grid's workers, where it has any that do tasks."""
    if grid.dispatch is None:
        return Evaluator(this)

    return RayEvaluator(this, grid.dispatch)


# RayEvaluator: Ray workers evaluate, batch by batch; the result is a single process's, to the bit.


TASKS_PER_WORKER = 4  # about: small enough that all end at about the same time


class RayEvaluator(Evaluator):
    """Has models evaluated by workers, while these have nothing else to do.

    Parameters
    ----------
    this : whose examples they are
    dispatch : deals to the workers
    """

    aside: ClassVar[bool] = True

    def __init__(self, this: Experiment, dispatch: Dispatch) -> None:
        super().__init__(this)
        self.dispatch = dispatch

    def evaluated(
        self, models: Sequence[ArrayRecord], split: str, owners: Owners
    ) -> Callable[[], list[Metrics]]:
        """Begin to evaluate models on ``test`` or ``validation``; return what waits for their metrics."""
        examples = [kept(self.this, split, owner) for owner in owners]
        dealt = [
            self._tasks(arrays, num_batches(held_out), len(models), "sums", split, owner)
            for arrays, held_out, owner in zip(models, examples, owners, strict=True)
        ]
        group = self.dispatch.add(chain(*dealt), aside=True)

        def wait() -> list[Metrics]:
            outcomes = zip(self._outcomes(dealt, group), examples, strict=True)
            return [averaged(sums, len(held_out)) for sums, held_out in outcomes]

        return wait

    def correctness_fn(self, models: Sequence[ArrayRecord]) -> Tensor:
        """Return whether each model classifies each validation example rightly, [models, V] of bools."""
        batches = num_batches(self.this.validation_examples)
        dealt = [self._tasks(arrays, batches, len(models), "correctness_fn") for arrays in models]
        group = self.dispatch.add(chain(*dealt), aside=True)
        return torch.stack([torch.cat(parts) for parts in self._outcomes(dealt, group)])

    def _tasks(
        self, arrays: ArrayRecord, batches: int, models: int, method: str, *told: object
    ) -> list["Evaluating"]:
        """Return the tasks that evaluate one of so many models by a worker's method."""
        wanted = max(1, TASKS_PER_WORKER * len(self.dispatch.workers) // models)
        each = math.ceil(batches / wanted)
        stored = Stored(arrays)
        return [
            Evaluating(stored, range(first, min(first + each, batches)), method, *told)
            for first in range(0, batches, each)
        ]

    def _outcomes(self, dealt: list[list["Evaluating"]], group: Group) -> list[list[Any]]:
        """Wait; return what was found out about each model, batch after batch."""
        self.dispatch.finish(group)
        return [list(chain.from_iterable(task.outcome() for task in tasks)) for tasks in dealt]


class Evaluating(Task):
    """Batches for a worker to evaluate a model on.

    Parameters
    ----------
    arrays : the model
    batches : which
    method : the worker's
    told : what else the method takes
    """

    def __init__(self, arrays: Stored, batches: range, method: str, *told: object) -> None:
        super().__init__()
        self.method, self.told = method, (arrays, batches, *told)
        self._outcome: list[Any] = []
        self._error: Exception | None = None

    def send(self, actor: Any) -> Any:
        """Have the worker evaluate."""
        return actor.do.remote(self.method, *self.told)

    def take(self, outcome: Any) -> None:
        """Keep what was found out, a list of one thing per batch."""
        self._outcome = outcome

    def raised(self, error: Exception) -> None:
        """Keep the error, for who waits."""
        self._error = error

    def lost(self, reason: str) -> None:
        """Tell who waits."""
        self._error = RunFailed(f"a model could not be evaluated: {reason}")

    def outcome(self) -> list[Any]:
        """Return what was found out; raise what the worker raised."""
        if self._error is not None:
            raise self._error
        return self._outcome
