"""A loss: a task says what to minimise and what to report."""

from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn.functional import cross_entropy

from baselines.datasets import Dataset
from clients import Classification

from .table import table


@dataclass(frozen=True)
class Focal(Classification):
    """(1 - p)^gamma times cross-entropy, p the label's probability.

    gamma = 0 is cross-entropy.
    """

    gamma: float = 2.0

    def __call__(
        self, outputs: Tensor, targets: Tensor, present: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        entropy = cross_entropy(outputs, targets, reduction="none")
        counts = outputs.new_ones(len(targets)) if present is None else present
        losses = (1 - (-entropy).exp()) ** self.gamma * entropy * counts
        right = (outputs.argmax(1) == targets) * counts
        return losses.sum() / counts.sum(), {
            "loss": losses.detach().sum(),
            "accuracy": right.sum(),
        }


def focal_table(path: str | None, label: str, gamma: float) -> Dataset:
    """A data set brings its task."""
    return replace(table(path, label), task=Focal(gamma))
