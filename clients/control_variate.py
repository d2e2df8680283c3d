"""SCAFFOLD on the node: the correction g <- g + c - c_k, and the renewal of c_k.

Karimireddy et al., ICML 2020, Algorithm 1; the server's half is :mod:`strategies.scaffold`. c_k lives in
Flower's ``context.state``, so it stays at the node and goes from round to round on every runtime. The one
before it stays, too, until the server has counted the change from one to the other.

Option 2 finds the round's mean gradient in how far the node has moved. In plain SGD that is eta_l times
the sum of the gradients; momentum beta lets each of them count for up to 1 / (1 - beta), so that the
distance is divided by the sum of their weights, not by the number of steps. By the latter c_k - c would be
multiplied by -beta / (1 - beta) in every round of many steps, and grow without bound from beta = 1/2 on.
"""

from collections.abc import Sequence

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD

from strategies import protocol
from strategies.arrays import pack, view

from .corrections import Correction
from .training import LocalTraining


class ControlVariate(Correction):
    """The correction of one round.

    Parameters
    ----------
    named : the trained parameters by name, at the values that the server sent, w_t
    sent : the server's variate c, by name
    state : the node's ``context.state``; it holds c_k, or nothing yet for c_k = 0
    rounds : the round that is played, and that of the last c_k that the server has counted; 0 for none,
        None where it counts all
    renewal : g_k(w_t), one tensor each, for option 1; for option 2 the round's :func:`gradient_weight`
    """

    def __init__(
        self,
        named: dict[str, Parameter],
        sent: ArrayRecord,
        state: RecordDict,
        rounds: tuple[int, int | None],
        renewal: Sequence[Tensor] | float,
    ) -> None:
        self.names = list(named)
        self.start = [p.detach().clone() for p in named.values()]
        self.state = state
        self.renewal = renewal
        self.sent = sent
        self.server = _tensors(sent, named)
        self.server_round, counted = rounds
        self.kept, self.made = _counted(state, counted)
        self.own = (
            [torch.zeros_like(p) for p in self.start] if self.kept is None else _tensors(self.kept, named)
        )
        self.shift = [c - own for c, own in zip(self.server, self.own, strict=True)]

    def __call__(self, parameters: Sequence[Parameter]) -> None:
        """Add c - c_k to the gradients."""
        for p, shift in zip(parameters, self.shift, strict=True):
            if p.grad is not None:
                p.grad.add_(shift)

    def finish(self, parameters: Sequence[Parameter], metrics: dict[str, float]) -> dict[str, ArrayRecord]:
        """Renew c_k in the node's state; return its change for the server."""
        if isinstance(self.renewal, int | float):
            scale = 1 / (self.renewal * metrics[protocol.LEARNING_RATE])
            renewed = [
                (start - p.detach()).mul_(scale).sub_(shift)
                for start, p, shift in zip(self.start, parameters, self.shift, strict=True)
            ]
        else:
            renewed = list(self.renewal)
        changes = [new - own for new, own in zip(renewed, self.own, strict=True)]
        if self.kept is not None:
            self.state[protocol.CONTROL_BEFORE] = self.kept
        self.state[protocol.CONTROL] = self._record(renewed)
        made = {protocol.CONTROL: self.server_round, protocol.CONTROL_BEFORE: self.made}
        self.state[protocol.CONTROL_ROUNDS] = ConfigRecord(dict(made))
        return {protocol.CONTROL: self._record(changes)}

    def _record(self, tensors: Sequence[Tensor]) -> ArrayRecord:
        """Return what is shaped as c, 0 for what is not trained."""
        values = {name: tensor.numpy(force=True) for name, tensor in zip(self.names, tensors, strict=True)}
        rest = {name: np.zeros_like(view(c)) for name, c in self.sent.items() if name not in values}
        return ArrayRecord({name: pack(value) for name, value in {**values, **rest}.items()})


def _counted(state: RecordDict, counted: int | None) -> tuple[ArrayRecord | None, int]:
    """Return the last c_k that the server has counted, and the round that made it; None for c_k = 0."""
    rounds = state.config_records.get(protocol.CONTROL_ROUNDS)
    if rounds is None or counted == 0:
        return None, 0
    for name in (protocol.CONTROL, protocol.CONTROL_BEFORE):
        if counted in (None, rounds[name]):
            return state.array_records.get(name), int(rounds[name])  # type: ignore[arg-type]
    return None, 0


def gradient_weight(training: LocalTraining, steps: int) -> float:
    """Return how many learning rates a parameter moves whose gradient is 1 in each of so many steps.

    It is ``steps`` in plain SGD, and the norm |a|_1 of FedNova (Wang et al., NeurIPS 2020, section 4) with
    momentum. A momentum kept from earlier rounds is left out.

    Raises
    ------
    ValueError : for an optimiser whose steps are no sums of gradients
    """
    optimizer = training.optimizer([Parameter(torch.zeros(1))])
    if type(optimizer) is not SGD:
        raise ValueError(
            "SCAFFOLD's option 2 takes a node's gradient from how far SGD has moved, client.optimizer is "
            f"{type(optimizer).__name__}: set strategy.option=1 (in groups +strategy.inner.option=1), or "
            "client=sgd"
        )
    settings = optimizer.param_groups[0]
    momentum, damping = settings["momentum"], 1 - settings["dampening"]
    if not momentum:
        return steps
    velocity = total = 0.0
    for step in range(steps):
        velocity = momentum * velocity + (damping if step else 1)
        total += 1 + momentum * velocity if settings["nesterov"] else velocity
    return total


def _tensors(record: ArrayRecord, named: dict[str, Parameter]) -> list[Tensor]:
    return [torch.from_numpy(view(record[name]).copy()).to(p) for name, p in named.items()]
