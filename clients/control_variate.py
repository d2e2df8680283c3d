"""SCAFFOLD on the node: the correction g <- g + c - c_k, and the renewal of c_k.

Karimireddy et al., ICML 2020, Algorithm 1; the server's half is :mod:`strategies.scaffold`, and
:mod:`clients.control_store` keeps c_k.

Option 2 finds the round's mean gradient in how far the node has moved. In plain SGD that is eta_l times
the sum of the gradients; momentum beta lets each of them count for up to 1 / (1 - beta), so that the
distance is divided by the sum of their weights, not by the number of steps. By the latter c_k - c would be
multiplied by -beta / (1 - beta) in every round of many steps, and grow without bound from beta = 1/2 on. A
momentum that is kept from earlier rounds would do the same, and is refused; so is a compression that lets a
node move in some directions alone. Clipped gradients count as clipped: rounds are slower, the optimum is
the same.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from flwr.app import ArrayRecord
from torch import Tensor
from torch.nn import Parameter

from strategies.shared import held, protocol
from strategies.shared.compression import Compression

from .control_store import ControlStore, counted_round
from .correction import Correction, Edit, OptimizerOf, RoundStart, Tensors
from .full_gradient import full_gradient
from .gradient_weight import gradient_weight

RESTRICTED = (
    "SCAFFOLD's option 2 computes a node's gradient from how far it has moved, and this compression lets "
    "it go in some directions alone: set strategy.option=1 (in groups +strategy.inner.option=1), or "
    "compression=sketch"
)
NEEDS_SGD = (
    "SCAFFOLD's option 2 computes a node's gradient from how far SGD has moved",
    "set strategy.option=1 (in groups +strategy.inner.option=1), or client=sgd",
)


class ControlVariate(Correction):
    """The correction of one round; the message carries the server's variate c as a record.

    ``renewal`` is what c_k is renewed from: for option 1 g_k(w_t), one tensor each; None for option 2,
    which takes the :func:`~clients.gradient_weight.gradient_weight` of the steps that were taken.
    """

    asked_by: ClassVar[str] = protocol.CONTROL_OPTION
    remembers: ClassVar[bool] = True
    shares_all: ClassVar[bool] = True  # c of a private parameter would be the mean of what is not alike

    def __init__(self, start: RoundStart) -> None:
        named = start.named
        self.names = list(named)
        self.start = [p.detach().clone() for p in named.values()]
        sent = start.content[protocol.CONTROL]
        assert isinstance(sent, ArrayRecord)
        self.sent = sent
        self.server_round = int(start.config[protocol.SERVER_ROUND])  # type: ignore[arg-type]
        self.store = ControlStore(start.state, counted_round(start.config, start.partition_id))
        kept = self.store.variate
        self.own = [torch.zeros_like(p) for p in self.start] if kept is None else _tensors(kept, named)
        self.shift = [c - own for c, own in zip(_tensors(self.sent, named), self.own, strict=True)]
        self.edit = Edit(_shifted, [self.shift])
        self.optimizer = start.optimizer
        self.renewal: Sequence[Tensor] | None = None
        if start.config[protocol.CONTROL_OPTION] == 1:
            self.renewal = full_gradient(start.model, start.examples, start.task, start.batch_size)

    @classmethod
    def check(cls, optimizer: OptimizerOf, config: Mapping[str, object]) -> None:
        """Raise ``ValueError`` where a node under option 2 moves by anything but sums of its gradients."""
        if not cls.reads_way(config):
            return
        gradient_weight(optimizer, 1, *NEEDS_SGD)
        compression = Compression.asked(config)
        if compression is not None and compression.restricts:
            raise ValueError(RESTRICTED)

    @classmethod
    def reads_way(cls, config: Mapping[str, object]) -> bool:
        """Option 2 does."""
        return config[protocol.CONTROL_OPTION] == 2

    def finish(self, parameters: Sequence[Parameter], metrics: dict[str, float]) -> dict[str, ArrayRecord]:
        """Renew c_k in the node's state; return its change for the server."""
        renewed = self._renewed(parameters, metrics)
        changes = [new - own for new, own in zip(renewed, self.own, strict=True)]
        self.store.renew(self._record(renewed), self.server_round)
        return {protocol.CONTROL: self._record(changes)}

    def _renewed(self, parameters: Sequence[Parameter], metrics: Mapping[str, float]) -> Sequence[Tensor]:
        """Return the new c_k."""
        if self.renewal is not None:
            return self.renewal
        rate = metrics[protocol.LEARNING_RATE]
        if rate == 0:  # no step, and no gradient seen
            return self.own
        scale = 1 / (rate * gradient_weight(self.optimizer, int(metrics[protocol.LOCAL_STEPS]), *NEEDS_SGD))
        return [
            (start - p.detach()).mul_(scale).sub_(shift)
            for start, p, shift in zip(self.start, parameters, self.shift, strict=True)
        ]

    def _record(self, tensors: Sequence[Tensor]) -> ArrayRecord:
        """Return what is shaped as c, 0 for what is not trained."""
        values = dict(zip(self.names, (tensor.detach().clone() for tensor in tensors), strict=True))
        rest = {
            name: torch.zeros_like(held.values_of(c)) for name, c in self.sent.items() if name not in values
        }
        return held.record({**values, **rest})


def _tensors(record: ArrayRecord, named: dict[str, Parameter]) -> list[Tensor]:
    return [held.values_of(record[name]).to(p) for name, p in named.items()]


def _shifted(gradients: Tensors, _: Tensors, shift: Tensors) -> Tensors:
    return torch._foreach_add(gradients, shift)
