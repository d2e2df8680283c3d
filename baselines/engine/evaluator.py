"""Evaluate models on the server's examples."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar

import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn

from baselines.experiment.experiment import Experiment
from clients import Examples
from clients.evaluation import BATCH_SIZE, correct, evaluate, num_batches, predictions
from clients.methods.uga import full_gradient
from clients.round import load
from strategies.shared.arrays import to_array_record

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
