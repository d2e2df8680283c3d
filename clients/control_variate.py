"""SCAFFOLD on the node: the correction g <- g + c - c_k, and the renewal of c_k.

Karimireddy et al., ICML 2020, Algorithm 1; the server's half is :mod:`strategies.scaffold`. c_k lives in
Flower's ``context.state``, so it stays at the node and goes from round to round on every runtime.
"""

from collections.abc import Sequence

import torch
from flwr.app import ArrayRecord, RecordDict
from torch import Tensor
from torch.nn import Parameter

from strategies import protocol
from strategies.arrays import pack, view

from .corrections import Correction


class ControlVariate(Correction):
    """The correction of one round.

    Parameters
    ----------
    named : the trained parameters by name, at the values that the server sent, w_t
    sent : the server's variate c, by name
    state : the node's ``context.state``; it holds c_k, or nothing yet for c_k = 0
    start_gradients : g_k(w_t), one tensor each, for option 1; None for option 2
    """

    def __init__(
        self,
        named: dict[str, Parameter],
        sent: ArrayRecord,
        state: RecordDict,
        start_gradients: Sequence[Tensor] | None = None,
    ) -> None:
        self.names = list(named)
        self.start = [p.detach().clone() for p in named.values()]
        self.state = state
        self.start_gradients = start_gradients
        self.server = _tensors(sent, named)
        kept = state.array_records.get(protocol.CONTROL)
        self.own = [torch.zeros_like(p) for p in self.start] if kept is None else _tensors(kept, named)
        self.shift = [c - own for c, own in zip(self.server, self.own, strict=True)]

    def __call__(self, parameters: Sequence[Parameter]) -> None:
        """Add c - c_k to the gradients."""
        for p, shift in zip(parameters, self.shift, strict=True):
            if p.grad is not None:
                p.grad.add_(shift)

    def finish(self, parameters: Sequence[Parameter], metrics: dict[str, float]) -> dict[str, ArrayRecord]:
        """Renew c_k in the node's state; return its change for the server."""
        if self.start_gradients is not None:
            renewed = list(self.start_gradients)
        else:
            scale = 1 / (metrics[protocol.LOCAL_STEPS] * metrics[protocol.LEARNING_RATE])
            renewed = [
                (start - p.detach()).mul_(scale).sub_(shift)
                for start, p, shift in zip(self.start, parameters, self.shift, strict=True)
            ]
        changes = [new - own for new, own in zip(renewed, self.own, strict=True)]
        self.state[protocol.CONTROL] = self._record(renewed)
        return {protocol.CONTROL: self._record(changes)}

    def _record(self, tensors: Sequence[Tensor]) -> ArrayRecord:
        return ArrayRecord(
            {name: pack(tensor.numpy(force=True)) for name, tensor in zip(self.names, tensors, strict=True)}
        )


def _tensors(record: ArrayRecord, named: dict[str, Parameter]) -> list[Tensor]:
    return [torch.from_numpy(view(record[name]).copy()).to(p) for name, p in named.items()]
