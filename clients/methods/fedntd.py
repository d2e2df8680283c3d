"""FedNTD: keep the global model's predictions for the labels that an example does not have.

Lee, Jeong, Shin, Bae, Yun: *Preservation of the Global Knowledge by Not-True Distillation in Federated
Learning*, NeurIPS 2022, equations 4 to 6. With f the logits of the model in training and f_g those of the
global one, w_t, both over all labels but the example's own, the loss gets

    beta KL( softmax(f_g / tau) || softmax(f / tau) )

averaged over the batch. With two labels one is left, so the term is 0 and this is FedAvg. Deviations: the
global model is in evaluation mode; the authors' code also multiplies by tau^2, which is part of beta here.
Reduction: beta = 0 is FedAvg.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax

from clients.correction import Correction, RoundStart
from clients.examples import Inputs, compute_outputs
from clients.tasks import Task
from strategies.shared.checks import require

from .fedlc import require_labels


class FedNTD(Correction):
    """The not-true distillation of one round.

    Parameters
    ----------
    start : the round's; its model is at w_t
    beta : strength, 0 or above; the paper takes 1
    tau : temperature, above 0; the paper takes 1
    """

    def __init__(self, start: RoundStart, beta: float = 1.0, tau: float = 1.0) -> None:
        self.check_settings(beta, tau)
        self.check_model(start.model, start.task)
        self.beta, self.tau = beta, tau
        self.fixed = copy.deepcopy(start.model).eval() if beta > 0 else None

    @staticmethod
    def check_settings(beta: float, tau: float) -> None:
        require(0 <= beta < float("inf"), "client.corrections.fedntd.beta", beta, "0 or above")
        require(0 < tau < float("inf"), "client.corrections.fedntd.tau", tau, "above 0")

    @staticmethod
    def check_model(model: nn.Module, task: Task) -> None:
        require_labels(task, "fedntd")

    @property
    def has_loss_term(self) -> bool:
        """Whether it adds to the loss."""
        return self.beta > 0

    def loss_term(self, model: nn.Module, inputs: Inputs, outputs: Tensor, targets: Tensor) -> Tensor:
        assert self.fixed is not None
        with torch.no_grad():
            of_global = self._others(compute_outputs(self.fixed, inputs), targets)
        of_own = self._others(outputs, targets)
        return self.beta * kl_div(of_own, of_global, reduction="batchmean", log_target=True)

    def _others(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the logarithms of the softmax over all labels but the example's, [n, classes - 1]."""
        labels = torch.arange(outputs.shape[1], device=outputs.device)
        others = outputs[labels != targets[:, None]].view(len(outputs), -1)
        return log_softmax(others / self.tau, 1)
