"""Evaluate a run's models on the server's examples, round after round."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import ClassVar

import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn
from torch.func import functional_call

from baselines.experiment.experiment import Experiment
from clients import Examples
from clients.evaluation import BATCH_SIZE, evaluate, find_correct, num_batches, predict_classes
from clients.examples import arguments_of
from clients.methods.uga import full_gradient
from clients.round import load_arrays
from strategies.core.strategy import ServerData
from strategies.shared.arrays import to_array_record

from .loggers import Progress
from .metrics import OWN_GROUP, write_classes
from .run_folder import RunFolder
from .saved_model import ModelSaver, describe

Metrics = dict[str, float]
Owners = Sequence[int | None]  # for each model, the node that it belongs to; None if several share it


class Evaluator(ServerData):
    """Evaluates models in this process, for the run's metrics and for the strategy.

    Parameters
    ----------
    experiment : whose examples they are
    """

    aside: ClassVar[bool] = False  # whether it evaluates while the next round trains

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    @cached_property
    def _model(self) -> nn.Module:
        return self.experiment.model()

    def evaluated(
        self, models: Sequence[ArrayRecord], split: str, owners: Owners
    ) -> Callable[[], list[Metrics]]:
        """Begin to evaluate models on ``test`` or ``validation``; return what waits for their metrics."""
        pairs = zip(models, owners, strict=True)
        metrics = [self._evaluated(arrays, split, owner) for arrays, owner in pairs]
        return lambda: metrics

    def predictions(self, models: Sequence[ArrayRecord], owners: Owners) -> list[tuple[Tensor, Tensor]]:
        """Return the test labels and each model's predictions, computed in this process."""
        results = []
        for arrays, owner in zip(models, owners, strict=True):
            load_arrays(self._model, arrays)
            results.append(predict_classes(self._model, select_examples(self.experiment, "test", owner)))
        return results

    @property
    def num_inputs(self) -> int:
        return len(self.experiment.server_inputs)

    def compute_outputs(self, arrays: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        device = next(self._model.parameters()).device
        examples = self.experiment.server_inputs
        inputs, _ = examples.batch(rows.to(examples.place(device)), device)
        arrays = {name: values.to(device) for name, values in arrays.items()}
        return functional_call(self._model.eval(), arrays, *arguments_of(inputs))

    def compute_correctness(self, models: Sequence[ArrayRecord]) -> Tensor:
        return torch.stack([self._is_correct(arrays) for arrays in models])

    def compute_gradient(self, model: ArrayRecord) -> ArrayRecord:
        """Return the gradient of the loss on the validation examples; 0 for entries that are not trained.

        A parameter with two names has its gradient under both: loading would otherwise take the other one.
        """
        load_arrays(self._model, model)
        task, named = self.experiment.dataset.task, self._model.named_parameters(remove_duplicate=False)
        slopes = full_gradient(self._model, self.experiment.validation_examples, task, BATCH_SIZE)
        slope_of = dict(zip((p for p in self._model.parameters() if p.requires_grad), slopes, strict=True))
        gradients = {name: slope_of[p] for name, p in named if p.requires_grad}
        values = self._model.state_dict().items()
        return to_array_record(
            {name: gradients.get(name, torch.zeros_like(value)) for name, value in values}
        )

    def _evaluated(self, arrays: ArrayRecord, split: str, owner: int | None) -> Metrics:
        load_arrays(self._model, arrays)
        return evaluate(
            self._model, select_examples(self.experiment, split, owner), self.experiment.dataset.task
        )

    def _is_correct(self, arrays: ArrayRecord) -> Tensor:
        load_arrays(self._model, arrays)
        examples = self.experiment.validation_examples
        return find_correct(self._model, examples, range(num_batches(examples)))


def select_examples(experiment: Experiment, split: str, owner: int | None) -> Examples:
    """Return the server's examples of ``test`` or ``validation`` for a model, of one node or of several."""
    if split == "validation":
        return experiment.validation_examples
    return experiment.test_examples if owner is None else experiment.node_data.own_test_examples(owner)


Models = dict[str, ArrayRecord]


@dataclass(frozen=True)
class PendingEvaluation:
    """Models that are being evaluated.

    Parameters
    ----------
    server_round : the round that produced them
    models : by the strategy's names for them
    weights : how many nodes each is for
    on_nodes : metrics measured on the nodes, used where the server has no test set
    waits : by split, a function that waits for their metrics
    """

    server_round: int
    models: Models
    weights: list[int]
    on_nodes: Metrics
    waits: dict[str, Callable[[], list[Metrics]]]


class ServerEvaluation:
    """Evaluates models, records and shows their metrics, and saves the requested model.

    Parameters
    ----------
    experiment : whose examples they are
    evaluator : how models are evaluated
    folder, progress : where the metrics go
    """

    def __init__(
        self, experiment: Experiment, evaluator: Evaluator, folder: RunFolder, progress: Progress
    ) -> None:
        self.experiment, self.evaluator, self.folder, self.progress = (
            experiment,
            evaluator,
            folder,
            progress,
        )
        save = experiment.settings.save
        self._saver = ModelSaver(folder.path, save, describe(experiment)) if save else None
        self._pending: PendingEvaluation | None = None
        self._mean: Metrics = {}  # of the last models; empty where a resumed run had nothing left to do

    def begin(
        self, server_round: int, models: Models, weights: list[int], owners: Owners, on_nodes: Metrics
    ) -> None:
        """Begin to evaluate the models; also finish, unless workers evaluate meanwhile."""
        arrays, wanted = list(models.values()), {"test": len(self.experiment.test_examples) > 0}
        wanted["validation"] = self.experiment.settings.validates
        splits = [split for split, is_wanted in wanted.items() if is_wanted]
        waits = {split: self.evaluator.evaluated(arrays, split, owners) for split in splits}
        self._pending = PendingEvaluation(server_round, models, weights, on_nodes, waits)
        if not self.evaluator.aside or not waits:
            self.finish()

    def finish(self) -> None:
        """Wait for the pending models' metrics, record them, and show their mean over the nodes."""
        if (pending := self._pending) is None:
            return
        self._pending = None
        means = {split: self._written(pending, split, wait()) for split, wait in pending.waits.items()}
        self._mean = means.get("test", pending.on_nodes)
        if self._saver is not None:
            self._saver.offer(pending.server_round, pending.models, self._mean)
        self.progress.show(pending.server_round, self._mean)

    def resume_from(self, server_round: int, models: Models) -> None:
        """Save the model that a resumed run asks for; it may have saved another before."""
        saver = self._saver or ModelSaver(self.folder.path, None)  # the run may have kept models before
        saver.resume_from(
            server_round, models, "test" if len(self.experiment.test_examples) else "node-test"
        )

    def end(self, server_round: int, models: Models, owners: Owners) -> None:
        """Save the last models and their metrics per class, where requested."""
        self.finish()
        if self._saver is not None:
            self._saver.end(server_round, models, self._mean)
        if self.experiment.settings.evaluation.per_class:
            predicted = self.evaluator.predictions(list(models.values()), owners)
            write_classes(self.folder.path, list(models), predicted)

    def _written(self, pending: PendingEvaluation, split: str, results: list[Metrics]) -> Metrics:
        """Record the metrics of each model; return their mean over the nodes."""
        for name, metrics in zip(pending.models, results, strict=True):
            self.folder.write(pending.server_round, split, name, metrics, is_one_of=len(results) > 1)
        mean = results[0]
        if len(results) > 1:
            mean = {metric: fmean((r[metric] for r in results), pending.weights) for metric in mean}
            self.folder.write(pending.server_round, split, OWN_GROUP, mean)
        return mean
