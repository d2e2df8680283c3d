"""q-FedAvg on the node: report the loss at the model received. The server's half: :mod:`strategies.qfedavg`."""

from collections.abc import Sequence
from typing import ClassVar

from flwr.app import ArrayRecord
from torch.nn import Parameter

from clients.correction import Correction, RoundStart
from strategies.shared import protocol

from .uga import full_loss


class StartLoss(Correction):
    """Reports F_k(w_t), the loss that the node minimises at the model that it is sent, in evaluation mode.

    It costs the node one more pass over its data, without gradients.
    """

    config_key: ClassVar[str] = protocol.START_LOSS

    def __init__(self, start: RoundStart) -> None:
        self.loss = full_loss(start.model, start.examples, start.task, start.batch_size)

    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        metrics[protocol.START_LOSS] = self.loss
        return {}
