"""The server's momentum in the nodes' steps: FedCM's and Mime-lite's.

Xu et al. 2021, Algorithm 2, and Karimireddy et al., NeurIPS 2021, Algorithm 1; the servers' halves are
:mod:`strategies.fedcm` and :mod:`strategies.mimelite`. With m the momentum that the message carries,

    g <- share g + (1 - share) m                         FedCM: share = alpha; Mime-lite: 1 - beta

in each step. It takes the place of the optimiser's momentum, so the client optimiser must be plain SGD.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from flwr.app import ArrayRecord
from torch.nn import Parameter
from torch.optim import SGD

from clients.correction import Correction, GradientTransform, OptimizerFactory, RoundStart, Tensors
from strategies.shared import protocol
from strategies.shared.arrays import record_like

from .uga import full_gradient


def require_plain_sgd(optimizer: OptimizerFactory, reason: str) -> None:
    """Raise ``ValueError``, with the reason, for another optimiser than SGD without momentum."""
    built = optimizer([Parameter(torch.zeros(1))])
    settings = built.param_groups[0]
    if type(built) is not SGD or settings["momentum"] or settings["maximize"]:
        raise ValueError(
            f"client.optimizer is {type(built).__name__}, not plain SGD: {reason}; "
            "set client_optimizer=sgd client.optimizer.momentum=0"
        )


class ClientMomentum(Correction):
    """FedCM's step, of one round; the message carries the momentum as a record, and alpha."""

    config_key: ClassVar[str] = protocol.CLIENT_MOMENTUM
    shares_all: ClassVar[bool] = True  # what is private has no momentum of all nodes

    def __init__(self, start: RoundStart) -> None:
        share = float(start.config[self.config_key])  # type: ignore[arg-type]
        momentum = start.tensors(protocol.MOMENTUM)
        self.gradient_transform = GradientTransform(_blend_momentum, [momentum], (share,))

    @classmethod
    def check(cls, optimizer: OptimizerFactory, config: Mapping[str, object]) -> None:
        """Raise ``ValueError`` for another optimiser than SGD without momentum."""
        require_plain_sgd(optimizer, "the strategy sends the momentum of the nodes' steps")

    @classmethod
    def uses_displacement(cls, config: Mapping[str, object]) -> bool:
        """Say yes: the server divides a node's displacement by its rate and steps."""
        return True


class MimeMomentum(ClientMomentum):
    """Mime-lite's step; the reply carries the gradient of all of the node's examples at w_t."""

    config_key: ClassVar[str] = protocol.MIME_SHARE

    def __init__(self, start: RoundStart) -> None:
        super().__init__(start)
        gradient = full_gradient(start.model, start.examples, start.task, start.batch_size)
        values = dict(zip(start.named, gradient, strict=True))
        self.gradient = record_like(start.content.array_records[protocol.MOMENTUM], values)

    @classmethod
    def uses_displacement(cls, config: Mapping[str, object]) -> bool:
        """Say no: the server's momentum is of gradients, not of displacements."""
        return False

    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        """Return the gradient, shaped as the momentum, 0 for what is not trained."""
        return {protocol.FULL_GRADIENT: self.gradient}


def _blend_momentum(gradients: Tensors, _: Tensors, momentum: Tensors, share: float) -> Tensors:
    return torch._foreach_add(torch._foreach_mul(gradients, share), momentum, alpha=1 - share)
