"""FedLC: labels that a node has few examples of get a margin in its loss.

Zhang, Li, Li, Xu, Wu, Ding, Wu: *Federated Learning with Label Distribution Skew via Logits Calibration*,
ICML 2022, section 4 (the calibrated cross-entropy). With f the logits of an example, y its label, and n_c
how many of the node's training examples have the label c, the loss is

    l(f, y) = -log( exp(f_y - tau n_y^(-1/4)) / sum_c exp(f_c - tau n_c^(-1/4)) )

in place of the cross-entropy, averaged over the batch. A label that the node has no example of (n_c = 0) is
left out of the sum, the formula's limit: its logit gets no gradient. Deviation: the sum is over all labels,
as in softmax and in the public implementations; the paper's equation leaves y itself out of it. The loss
that is reported is the plain cross-entropy. Reduction: tau = 0 is FedAvg.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clients.correction import Correction, RoundStart
from clients.examples import Inputs
from clients.tasks import Classification, Task
from strategies.shared.checks import require


class FedLC(Correction):
    """The calibrated loss of one round.

    Parameters
    ----------
    start : the round's
    tau : the margin's scale, 0 or above; the paper takes 0.1 to 1
    """

    def __init__(self, start: RoundStart, tau: float = 1.0) -> None:
        self.check_settings(tau)
        self.check_model(start.model, start.task)
        self.tau, self.examples = tau, start.examples
        self.margins = torch.empty(0)

    @staticmethod
    def check_settings(tau: float) -> None:
        require(0 <= tau < float("inf"), "client.corrections.fedlc.tau", tau, "0 or above")

    @staticmethod
    def check_model(model: nn.Module, task: Task) -> None:
        require_cross_entropy(task, "fedlc")

    @property
    def replaces_loss(self) -> bool:
        """Whether it replaces the task's loss."""
        return self.tau > 0

    def replace_loss(self, model: nn.Module, inputs: Inputs, outputs: Tensor, targets: Tensor) -> Tensor:
        if not len(self.margins):
            self.margins = self.tau * self.examples.count_labels(outputs.shape[1]).to(outputs) ** -0.25
        return cross_entropy(outputs - self.margins, targets)


def require_labels(task: Task, name: str) -> None:
    """Raise ``ValueError`` where the task is no classification."""
    if not isinstance(task, Classification):
        raise ValueError(
            f"corrections={name} needs a data set with labels, one for each example, and the task of this one "
            f"is {type(task).__name__}: choose corrections=none"
        )


def require_cross_entropy(task: Task, name: str) -> None:
    """Raise ``ValueError`` where the loss is not the cross-entropy, which ``replace_loss`` replaces."""
    require_labels(task, name)
    if type(task) is not Classification:
        raise ValueError(
            f"corrections={name} replaces the cross-entropy, and the loss of this data set is that of "
            f"{type(task).__name__}: choose corrections=none"
        )
