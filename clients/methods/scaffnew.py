"""Scaffnew on the node: g <- g - h_k, and the renewal of h_k. The server's half is :mod:`strategies.scaffnew`.

Mishchenko et al., ICML 2022, Algorithm 2. At the end of a round the node keeps h_k, its trained model w[t,k]
and p / gamma. The next message brings w[t+1], which gives the new h_k + (p / gamma) (w[t+1] - w[t,k]). If the
server took no step, h_k stays: the message names the last round whose step was taken.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from flwr.app import ArrayRecord, ConfigRecord
from torch import Tensor
from torch.nn import Parameter

from clients.correction import Correction, GradientTransform, OptimizerFactory, RoundStart, Tensors
from strategies.shared import protocol
from strategies.shared.arrays import to_array_record, values_of

from .fedcm import require_plain_sgd
from .scaffold import counted_round

SCALE_KEY = "scale"  # p / gamma of the round that CONTROL_END is of


class LocalVariate(Correction):
    """The correction of one round; h_k stays at the node, in Flower's ``context.state``."""

    config_key: ClassVar[str] = protocol.COMMUNICATION_PROBABILITY
    remembers: ClassVar[bool] = True
    shares_all: ClassVar[bool] = True  # a private parameter has no mean of all nodes

    def __init__(self, start: RoundStart) -> None:
        self.state = start.state
        self.probability = float(start.config[self.config_key])  # type: ignore[arg-type]
        self.server_round = int(start.config[protocol.SERVER_ROUND])  # type: ignore[arg-type]
        self.names = list(start.named)
        self.own = self._renew_variate(start)
        self.gradient_transform = GradientTransform(_subtract_variate, [self.own])

    @classmethod
    def check(cls, optimizer: OptimizerFactory, config: Mapping[str, object]) -> None:
        """Raise ``ValueError`` for another optimiser than SGD without momentum."""
        require_plain_sgd(optimizer, "Scaffnew takes how far a node has moved for a sum of gradients")

    @classmethod
    def uses_displacement(cls, config: Mapping[str, object]) -> bool:
        """Say yes: h_k is computed from it."""
        return True

    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        """Keep h_k and what its renewal needs."""
        rate = metrics[protocol.LEARNING_RATE]
        scale = self.probability / rate if rate else 0.0  # without a step there is nothing to correct
        self.state[protocol.CONTROL] = self._record(self.own)
        self.state[protocol.CONTROL_END] = self._record(parameters)
        self.state[protocol.CONTROL_ROUNDS] = ConfigRecord(
            {protocol.CONTROL: self.server_round, SCALE_KEY: scale}
        )
        return {}

    def _renew_variate(self, start: RoundStart) -> list[Tensor]:
        """Return h_k at the model that the server sent."""
        parameters = [p.detach() for p in start.named.values()]
        saved = self.state.config_records.get(protocol.CONTROL_ROUNDS)
        counted = counted_round(start.config, start.partition_id)
        if saved is None or counted == 0:
            return [torch.zeros_like(p) for p in parameters]
        own, ends = (
            self._load_tensors(name, parameters) for name in (protocol.CONTROL, protocol.CONTROL_END)
        )
        if counted not in (None, saved[protocol.CONTROL]):
            return own
        scale = float(saved[SCALE_KEY])  # type: ignore[arg-type]
        moves = torch._foreach_sub(parameters, ends)
        return list(torch._foreach_add(own, moves, alpha=scale))

    def _load_tensors(self, name: str, parameters: Sequence[Tensor]) -> list[Tensor]:
        record = self.state.array_records[name]
        return [values_of(record[key]).to(p) for key, p in zip(self.names, parameters, strict=True)]

    def _record(self, tensors: Sequence[Tensor]) -> ArrayRecord:
        return to_array_record(
            {key: tensor.detach().clone() for key, tensor in zip(self.names, tensors, strict=True)}
        )


def _subtract_variate(gradients: Tensors, _: Tensors, own: Tensors) -> Tensors:
    return torch._foreach_sub(gradients, own)
