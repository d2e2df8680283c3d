"""Evaluator: how well models do on the examples that the server keeps."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar

import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn

from baselines.experiment.experiment import Experiment
from clients.app import load
from clients.evaluation import correct, evaluate, num_batches

Metrics = dict[str, float]


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

    def evaluated(self, models: Sequence[ArrayRecord]) -> Callable[[], list[Metrics]]:
        """Begin to evaluate models on the test set; return a function that waits for their metrics."""
        found = [self._evaluated(arrays) for arrays in models]
        return lambda: found

    def right_on(self, models: Sequence[ArrayRecord]) -> Tensor:
        """Return whether each model classifies each validation example rightly, [models, V] of bools."""
        return torch.stack([self._right_on(arrays) for arrays in models])

    def _evaluated(self, arrays: ArrayRecord) -> Metrics:
        load(self._model, arrays)
        return evaluate(self._model, self.this.test_examples, self.this.dataset.task)

    def _right_on(self, arrays: ArrayRecord) -> Tensor:
        load(self._model, arrays)
        examples = self.this.validation_examples
        return correct(self._model, examples, range(num_batches(examples)))
