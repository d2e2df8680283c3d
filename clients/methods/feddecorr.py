"""FedDecorr: keep the coordinates of a node's representations uncorrelated.

Shi, Liang, Zhang, Tan, Bai: *Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous
Federated Learning*, ICLR 2023, equation 6. With K the correlation matrix [d, d] of the batch's
representations, which the model's last linear layer is given, the loss gets

    beta (1 / d^2) || K ||_F^2

Deviations: the authors' code leaves the diagonal out, which is 1, and divides K's square by the batch size N,
not K itself: its beta counts about N times as much. Variances have 1e-8 added, so that a coordinate that is
the same for all examples counts as uncorrelated. A batch of one example has no term. Reduction: beta = 0 is
FedAvg.
"""

from torch import Tensor, nn

from clients.correction import Correction, RoundStart
from clients.examples import Inputs
from clients.tasks import Task
from strategies.shared.checks import require

from .moon import Representation, find_last_linear

OPTION = "corrections=feddecorr"
MIN_VARIANCE = 1e-8


class FedDecorr(Correction):
    """The decorrelating term of one round.

    Parameters
    ----------
    start : the round's
    beta : strength, 0 or above; the paper takes 0.1
    """

    def __init__(self, start: RoundStart, beta: float = 0.1) -> None:
        self.check_settings(beta)
        self.beta = beta
        self.own = Representation(start.model, OPTION)

    @staticmethod
    def check_settings(beta: float) -> None:
        require(0 <= beta < float("inf"), "client.corrections.feddecorr.beta", beta, "0 or above")

    @staticmethod
    def check_model(model: nn.Module, task: Task) -> None:
        find_last_linear(model, OPTION)

    @property
    def has_loss_term(self) -> bool:
        """Whether it adds to the loss."""
        return self.beta > 0

    def loss_term(self, model: nn.Module, inputs: Inputs, outputs: Tensor, targets: Tensor) -> Tensor:
        z = self.own.latest
        if len(z) < 2:
            return outputs.new_zeros(())
        centred = z - z.mean(0)
        standardised = centred / (centred.square().mean(0) + MIN_VARIANCE).sqrt()
        correlations = standardised.T @ standardised / len(z)
        return self.beta * correlations.square().mean()
