"""FedRS: the logits of labels that a node does not have count for less in its softmax.

Li, Zhan: *FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data*, KDD 2021,
section 4. With f the logits of an example, the node's loss is the cross-entropy of

    f'_c = f_c          for labels c of which the node has training examples
    f'_c = alpha f_c    for the others

so that their part of the classifier moves less. Deviation: the paper scales the products of the
classifier's weights with the features, here a bias is scaled with them, as in the public implementations.
The loss that is reported is the plain cross-entropy. Reductions: alpha = 1 is FedAvg; so is a node that has
examples of all labels.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clients.correction import Correction, RoundStart
from clients.examples import Inputs
from clients.tasks import Task
from strategies.shared.checks import require

from .fedlc import require_cross_entropy


class FedRS(Correction):
    """The restricted softmax of one round.

    Parameters
    ----------
    start : the round's
    alpha : what the logits of missing labels are multiplied by, in [0, 1]; the paper takes 0.5
    """

    def __init__(self, start: RoundStart, alpha: float = 0.5) -> None:
        self.check_settings(alpha)
        self.check_model(start.model, start.task)
        self.alpha, self.examples = alpha, start.examples
        self.factors = torch.empty(0)

    @staticmethod
    def check_settings(alpha: float) -> None:
        require(0 <= alpha <= 1, "client.corrections.fedrs.alpha", alpha, "in [0, 1]")

    @staticmethod
    def check_model(model: nn.Module, task: Task) -> None:
        require_cross_entropy(task, "fedrs")

    @property
    def replaces_loss(self) -> bool:
        """Whether it replaces the task's loss."""
        return self.alpha < 1

    def replace_loss(self, model: nn.Module, inputs: Inputs, outputs: Tensor, targets: Tensor) -> Tensor:
        if not len(self.factors):
            missing = self.examples.count_labels(outputs.shape[1]).to(outputs.device) == 0
            self.factors = torch.ones_like(outputs[0]).masked_fill(missing, self.alpha).detach()
        return cross_entropy(outputs * self.factors, targets)
