"""FedNova on the node: report the work done. The server's half is :mod:`strategies.fednova`."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from flwr.app import ArrayRecord
from torch.nn import Parameter

from clients.correction import Correction, OptimizerFactory, RoundStart
from strategies.shared import protocol

from .scaffold import gradient_weight

NEEDS_SGD = (
    "FedNova divides a node's update by the summed weights of its gradients, which SGD has",
    "set client_optimizer=sgd, or aggregation=mean",
)


class EffectiveSteps(Correction):
    """Reports |a|_1, the summed weights of the round's gradients in the node's update.

    It is the number of steps in plain SGD, more with momentum, which begins anew in each round. FedProx'
    term and weight decay count as parts of the gradient.
    """

    config_key: ClassVar[str] = protocol.EFFECTIVE_STEPS

    def __init__(self, start: RoundStart) -> None:
        self.optimizer = start.optimizer

    @classmethod
    def check(cls, optimizer: OptimizerFactory, config: Mapping[str, object]) -> None:
        """Raise ``ValueError`` for an optimiser whose steps are no sums of gradients."""
        gradient_weight(optimizer, 1, *NEEDS_SGD)

    @classmethod
    def uses_displacement(cls, config: Mapping[str, object]) -> bool:
        """Say yes: the server divides the node's displacement by |a|_1."""
        return True

    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        steps = int(metrics[protocol.LOCAL_STEPS])
        metrics[protocol.EFFECTIVE_STEPS] = gradient_weight(self.optimizer, steps, *NEEDS_SGD)
        return {}
