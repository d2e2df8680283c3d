"""Evaluate a run's models on the server's examples, round after round."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from flwr.app import ArrayRecord

from baselines.experiment.experiment import Experiment
from baselines.grids.base import SuiteGrid

from .evaluator import Evaluator, Metrics, Owners
from .loggers import Progress
from .measures import write_classes
from .metrics import OWN_GROUP
from .run_folder import RunFolder
from .saved_model import ModelSaver, describe

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
    from .ray_evaluator import RayEvaluator  # imports Ray

    return RayEvaluator(this, grid.dispatch)
