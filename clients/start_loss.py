"""q-FedAvg on the node: its loss at the model it is sent. The server's half: :mod:`strategies.qfedavg`."""

from collections.abc import Sequence
from typing import ClassVar

from flwr.app import ArrayRecord
from torch.nn import Parameter

from strategies.shared import protocol

from .correction import Correction, RoundStart
from .evaluation import evaluate


class StartLoss(Correction):
    """Reports F_k(w_t), the mean loss of the node's training examples, the model in evaluation mode.

    It costs the node one more pass over its data, without gradients.
    """

    asked_by: ClassVar[str] = protocol.START_LOSS

    def __init__(self, start: RoundStart) -> None:
        self.loss = evaluate(start.model, start.examples, start.task)[protocol.LOSS]

    def finish(self, parameters: Sequence[Parameter], metrics: dict[str, float]) -> dict[str, ArrayRecord]:
        metrics[protocol.START_LOSS] = self.loss
        return {}
