"""SCAFFOLD on the node: the correction g <- g + c - c_k, and the renewal of c_k.

Karimireddy et al., ICML 2020, Algorithm 1; the server's half is :mod:`strategies.scaffold`, and
:class:`ControlStore` keeps c_k.

Option 2 computes the round's mean gradient from how far the node has moved. In plain SGD that is eta_l times
the sum of the gradients. Momentum beta lets each of them count for up to 1 / (1 - beta), so that the
distance is divided by the sum of their weights, not by the number of steps. With the number of steps, c_k - c
would be multiplied by -beta / (1 - beta) in every long round, and grow without bound from beta = 1/2 on. A
momentum that is kept from earlier rounds would do the same, and is refused; so is a compression that lets a
node move in some directions alone. Clipped gradients count as clipped: rounds are slower, the optimum is
the same.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD

from clients.correction import Correction, GradientTransform, OptimizerFactory, RoundStart, Tensors
from strategies.shared import protocol
from strategies.shared.arrays import record_like, values_of

from .uga import full_gradient

# c_k (FedDyn: g_k) and the one before it lie in Flower's ``context.state``. The one before stays until
# the server has counted the change from one to the other: a change that did not arrive is taken back.


class ControlStore:
    """The node's last c_k that the server has counted.

    Parameters
    ----------
    state : the node's ``context.state``
    counted : the round of the last c_k that the server has counted; 0 for none, None where it counts all

    Attributes
    ----------
    variate : that c_k; None for c_k = 0
    made : the round that made it; 0 for none
    """

    def __init__(self, state: RecordDict, counted: int | None) -> None:
        self.state = state
        self.variate: ArrayRecord | None = None
        self.rounds = 0
        rounds = state.config_records.get(protocol.CONTROL_ROUNDS)
        if rounds is None or counted == 0:
            return
        for name in (protocol.CONTROL, protocol.CONTROL_BEFORE):
            if counted in (None, rounds[name]):
                self.variate = state.array_records.get(name)
                self.rounds = int(rounds[name])  # type: ignore[arg-type]
                return

    def renew(self, variate: ArrayRecord, server_round: int) -> None:
        """Keep a new c_k, and the counted one as the one before it."""
        if self.variate is not None:
            self.state[protocol.CONTROL_BEFORE] = self.variate
        self.state[protocol.CONTROL] = variate
        made = {protocol.CONTROL: server_round, protocol.CONTROL_BEFORE: self.rounds}
        self.state[protocol.CONTROL_ROUNDS] = ConfigRecord(dict(made))


def counted_round(config: ConfigRecord, partition_id: int) -> int | None:
    """Return the round of the last c_k of this node that the server has counted; 0 for none, None for its last.

    It serves whatever a node keeps under a :class:`~strategies.core.stateful_clients.StatefulClientsStrategy`.
    """
    lost: list[int] = config.get(protocol.CONTROL_LOST, [])  # type: ignore[assignment]
    if partition_id not in lost:
        return None
    return config[protocol.CONTROL_COUNTED][lost.index(partition_id)]  # type: ignore[index,return-value]


def gradient_weight(optimizer: OptimizerFactory, steps: int, who: str, remedy: str) -> float:
    """Return how far a parameter moves, in learning rates, whose gradient is 1 in each of ``steps`` steps.

    It is ``steps`` in plain SGD, and the norm |a|_1 of FedNova (Wang et al., NeurIPS 2020, section 4) with
    momentum, which begins at 0. ``who`` and ``remedy`` are the error's words: who needs it, what to do instead.

    Raises
    ------
    ValueError : for an optimiser whose steps are no sums of gradients
    """
    built = optimizer([Parameter(torch.zeros(1))])
    settings = built.param_groups[0]
    if type(built) is not SGD or settings["maximize"]:
        name = "SGD that maximises" if type(built) is SGD else type(built).__name__
        raise ValueError(f"{who}, but client.optimizer is {name}: {remedy}")
    momentum, damping = settings["momentum"], 1 - settings["dampening"]
    if not momentum:
        return steps
    velocity = total = 0.0
    for step in range(steps):
        velocity = momentum * velocity + (damping if step else 1)
        total += 1 + momentum * velocity if settings["nesterov"] else velocity
    return total


RESTRICTION_ERROR = (
    "SCAFFOLD's option 2 computes a node's gradient from how far it has moved, and this compression lets "
    "it go in some directions alone: set strategy.option=1 (in groups +strategy.inner.option=1), or "
    "compression=sketch"
)
NEEDS_SGD = (
    "SCAFFOLD's option 2 computes a node's gradient from how far SGD has moved",
    "set strategy.option=1 (in groups +strategy.inner.option=1), or client_optimizer=sgd",
)


class ControlVariate(Correction):
    """The correction of one round; the message carries the server's variate c as a record.

    ``renewal`` is the next c_k of option 1, g_k(w_t), a tensor for each parameter; None for option 2, which
    takes the :func:`~clients.methods.scaffold.gradient_weight` of the steps that were taken.
    """

    config_key: ClassVar[str] = protocol.CONTROL_OPTION
    remembers: ClassVar[bool] = True
    shares_all: ClassVar[bool] = True  # c of a private parameter would be the mean of different parameters

    def __init__(self, start: RoundStart) -> None:
        named = start.named
        self.names = list(named)
        self.start = [p.detach().clone() for p in named.values()]
        self.sent = start.content.array_records[protocol.CONTROL]
        self.server_round = int(start.config[protocol.SERVER_ROUND])  # type: ignore[arg-type]
        self.store = ControlStore(start.state, counted_round(start.config, start.partition_id))
        kept = self.store.variate
        self.own = [
            torch.zeros_like(p) if kept is None else values_of(kept[name]).to(p)
            for name, p in named.items()
        ]
        self.shift = [c - own for c, own in zip(start.tensors(protocol.CONTROL), self.own, strict=True)]
        self.gradient_transform = GradientTransform(_add_shift, [self.shift])
        self.optimizer = start.optimizer
        self.renewal: Sequence[Tensor] | None = None
        if start.config[protocol.CONTROL_OPTION] == 1:
            self.renewal = full_gradient(start.model, start.examples, start.task, start.batch_size)

    @classmethod
    def check(cls, optimizer: OptimizerFactory, config: Mapping[str, object]) -> None:
        """Raise ``ValueError`` where a node under option 2 moves by anything but sums of its gradients."""
        if not cls.uses_displacement(config):
            return
        gradient_weight(optimizer, 1, *NEEDS_SGD)

    @classmethod
    def uses_displacement(cls, config: Mapping[str, object]) -> bool:
        """Say yes for option 2."""
        return config[protocol.CONTROL_OPTION] == 2

    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        """Renew c_k in the node's state; return its change for the server."""
        renewed = self._renew_variate(parameters, metrics)
        changes = [new - own for new, own in zip(renewed, self.own, strict=True)]
        self.store.renew(self._record(renewed), self.server_round)
        return {protocol.CONTROL: self._record(changes)}

    def _renew_variate(
        self, parameters: Sequence[Parameter], metrics: Mapping[str, float]
    ) -> Sequence[Tensor]:
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
        return record_like(self.sent, values)


def _add_shift(gradients: Tensors, _: Tensors, shift: Tensors) -> Tensors:
    return torch._foreach_add(gradients, shift)
