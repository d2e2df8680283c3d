"""Encode a node's update, and restrict its training to what is sent.

:mod:`strategies.shared.compression` says what codes are, and the server's half is
:mod:`strategies.core.replies`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict
from torch import Tensor, nn
from torch.nn import Parameter

from strategies.shared import protocol
from strategies.shared.arrays import to_array_record, values_of
from strategies.shared.codecs import COMPRESSIONS, requested_compression
from strategies.shared.compression import Compression, Restriction

from .correction import Correction
from .private import select_private as of_node

STATE_KEY = "left-out"  # ArrayRecord of a node's state: what error feedback adds to the next update


@dataclass(frozen=True)
class UpdateEncoder:
    """How a node codes its update in one round.

    Parameters
    ----------
    compression : what the message asks for
    seeds : by trained array's name: the seed of all that its code draws
    private : patterns of what stays at the node, and so is trained without restriction
    """

    compression: Compression
    seeds: Mapping[str, int]
    private: Sequence[str] = ()

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        model: nn.Module,
        draws: Callable[[], np.random.Generator],
        private: Sequence[str] = (),
        known: Sequence[type[Compression]] = COMPRESSIONS,
    ) -> "UpdateEncoder | None":
        """Return what a message asks for; None for nothing."""
        if (compression := requested_compression(config, known)) is None:
            return None
        names = [name for name, p in model.named_parameters() if p.requires_grad]
        seeds = dict(zip(names, draws().integers(2**63, size=len(names)).tolist(), strict=True))
        return cls(compression, seeds, private)

    @torch.no_grad()
    def make_corrections(self, model: nn.Module) -> list[Correction]:
        """Return what keeps a node from training what it will not send."""
        if not self.compression.restricts:
            return []
        parameters, own = dict(model.named_parameters()), of_node(model, self.private)
        restrictions = [
            None if name in own else self.compression.restriction(parameters[name], seed)
            for name, seed in self.seeds.items()
        ]
        return [GradientRestriction(restrictions)]

    @torch.no_grad()
    def make_records(
        self, model: nn.Module, start: ArrayRecord, state: RecordDict, frozen: Collection[str] = ()
    ) -> dict[str, ArrayRecord]:
        """Return the reply's records of the trained model, without what is ``frozen``.

        Renews what error feedback keeps in the node's ``state``.

        An update that is not finite is sent as such, so that the server leaves the node out by name.
        """
        compression, residual = self.compression, state.array_records.get(STATE_KEY)
        codes: dict[str, Tensor] = {}
        left_out: dict[str, Tensor] = {}
        trained = dict(model.named_parameters())
        for name, seed in self.seeds.items():
            p = trained[name]
            delta = (values_of(start[name]).to(p) - p).cpu().numpy()
            if compression.error_feedback and residual is not None:
                delta = delta + values_of(residual[name]).cpu().numpy().reshape(delta.shape)
            if not (finite := bool(np.isfinite(delta).all())):
                delta = np.full_like(delta, np.inf)
            code = compression.encode(delta, seed)
            codes[name] = torch.from_numpy(np.frombuffer(code, np.uint8).copy())
            if compression.error_feedback and finite:
                arrived = compression.decode(code, delta.shape, delta.dtype)
                left_out[name] = torch.from_numpy(delta - arrived)
        if left_out and len(left_out) == len(codes):
            state[STATE_KEY] = to_array_record(left_out)
        separate = {*codes, *frozen}
        rest = {name: t.clone() for name, t in model.state_dict().items() if name not in separate}
        return {protocol.ARRAYS: to_array_record(rest), protocol.CODES: to_array_record(codes)}


class GradientRestriction(Correction):
    """g <- the part of it that the node will send (Konecny et al. 2016, section 2).

    Parameters
    ----------
    restrictions : for each parameter, of its gradient; None leaves it whole
    """

    def __init__(self, restrictions: Sequence[Restriction | None]) -> None:
        self.restrictions = restrictions

    def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
        for p, restriction in zip(parameters, self.restrictions, strict=True):
            if p.grad is not None and restriction is not None:
                p.grad = restriction(p.grad)
