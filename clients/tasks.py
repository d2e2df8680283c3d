"""Task: the loss and the metrics of one batch."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from strategies.shared import protocol


class Task(ABC):
    """A loss to minimise and the metrics to report."""

    sums: ClassVar[bool] = False  # whether the loss is a sum over a batch's examples, not their mean

    @abstractmethod
    def __call__(
        self, outputs: Tensor, targets: Tensor, present: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar that local training minimises on a batch, and the batch's metrics.

        Each metric is summed over the examples (and detached); its user divides by their number.
        ``present`` is 0 for rows that only fill a batch up, else 1, [n] in the outputs' dtype; None: all 1.
        """


@dataclass(frozen=True)
class Classification(Task):
    """Mean cross-entropy of logits [n, classes] against labels [n]; accuracy in [0, 1]."""

    def __call__(
        self, outputs: Tensor, targets: Tensor, present: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean cross-entropy; its sum, and the number of correct predictions."""
        correct = outputs.detach().argmax(1) == targets
        if present is None:
            loss = cross_entropy(outputs, targets)
            return loss, {protocol.LOSS: loss.detach() * len(targets), protocol.ACCURACY: correct.sum()}
        total = (cross_entropy(outputs, targets, reduction="none") * present).sum()
        sums = {protocol.LOSS: total.detach(), protocol.ACCURACY: (correct & (present > 0)).sum()}
        return total / present.sum(), sums


@dataclass(frozen=True)
class NextToken(Task):
    """Mean cross-entropy of logits [n, T, vocabulary] against the tokens [n, T]; accuracy in [0, 1].

    Each token of an example counts the same, and so does each example.
    """

    def __call__(
        self, outputs: Tensor, targets: Tensor, present: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean cross-entropy; the sums of the examples' losses and shares of right tokens."""
        losses = cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)
        right = (outputs.detach().argmax(2) == targets).to(outputs.dtype).mean(1)
        if present is None:
            return losses.mean(), {protocol.LOSS: losses.detach().sum(), protocol.ACCURACY: right.sum()}
        total = (losses * present).sum()
        sums = {protocol.LOSS: total.detach(), protocol.ACCURACY: (right * present).sum()}
        return total / present.sum(), sums


@dataclass(frozen=True)
class LeastSquares(Task):
    """F_i(w) = 0.5 ||A_i w - b_i||^2, not divided by the number of rows (FedExP, section 6).

    The reported loss is ||A w - b||^2 / M over all rows of M nodes with ``rows_per_node`` each.
    """

    sums: ClassVar[bool] = True
    rows_per_node: int = 30

    def __call__(
        self, outputs: Tensor, targets: Tensor, present: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return F_i, and ``rows_per_node`` times ||A_i w - b_i||^2: its mean over rows is the reported loss."""
        if present is None:
            squared = mse_loss(outputs, targets, reduction="sum")
        else:
            squared = ((outputs - targets).square() * present[:, None]).sum()
        return 0.5 * squared, {protocol.LOSS: self.rows_per_node * squared.detach()}
