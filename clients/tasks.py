"""Task: what a model is trained for, and how well it does, on one batch."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from strategies import protocol


class Task(ABC):
    """A loss to minimise and the metrics to report."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the scalar that local training minimises on one batch."""

    @abstractmethod
    def sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return each metric summed over the batch; divided by the number of examples later."""


@dataclass(frozen=True)
class Classification(Task):
    """Mean cross-entropy of logits [n, classes] against labels [n]; accuracy in [0, 1]."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        return cross_entropy(outputs, targets)

    def sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return summed cross-entropy and the number of correct predictions."""
        return {
            protocol.LOSS: cross_entropy(outputs, targets, reduction="sum"),
            protocol.ACCURACY: (outputs.argmax(1) == targets).sum(),
        }


@dataclass(frozen=True)
class LeastSquares(Task):
    """F_i(w) = 0.5 ||A_i w - b_i||^2, not divided by the number of rows (FedExP, section 6).

    The reported loss is ||A w - b||^2 / M over all rows of M nodes with ``rows_per_node`` each.
    """

    rows_per_node: int = 30

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return half the squared norm of the residual."""
        return 0.5 * (outputs - targets).square().sum()

    def sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return ``rows_per_node`` times the squared norm: its mean over rows is the loss per node."""
        return {protocol.LOSS: self.rows_per_node * (outputs - targets).square().sum()}
