"""Keep frozen parameters at the node: fill them into each model, and never send them back.

:mod:`strategies.shared.arrays` says how they travel, and the server's half is
:mod:`strategies.core.frozen`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from strategies.shared import protocol
from strategies.shared.arrays import hash_values, to_array_record, values_of

STATE_PREFIX = (
    "frozen-"  # begins the name of an ArrayRecord of a node's state; the hash of its values ends it
)
NO_ARRAYS: Mapping[str, Array] = {}


@dataclass(frozen=True)
class Frozen:
    """A model's frozen parameters and buffers, by name, and the hash of their values."""

    arrays: ArrayRecord
    hash: str

    @classmethod
    def of(cls, model: nn.Module) -> "Frozen | None":
        """Return a copy of what is frozen in a model; None where all is trained."""
        names = frozen_names(model)
        if not names:
            return None
        state = model.state_dict()
        arrays = to_array_record({name: state[name].detach().clone() for name in names})
        return cls(arrays, hash_values(arrays))


FROZEN_BUFFERS = "frozen_buffers"  # a module's attribute: names of its own buffers that never change


def frozen_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the parameters with ``requires_grad=False``, and of the buffers beside them."""
    parameters = (n for n, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad)
    return tuple(dict.fromkeys((*parameters, *_frozen_buffers(model))))


def _frozen_buffers(model: nn.Module) -> Iterator[str]:
    """Yield the names of the buffers that a module declares, and of the statistics that cannot move.

    These are a frozen batch norm's that stays in evaluation mode while the model trains, as
    ``Module.train`` of the model sees to. In training mode they move, whether its parameters do or not.

    Raises
    ------
    ValueError : for a declared buffer that the module does not have
    """
    if next(model.buffers(), None) is None:
        return
    modes = {module: module.training for module in model.modules()}
    model.train()
    try:
        still = [m for m in modes if isinstance(m, _NormBase) and not m.training]
    finally:
        for module, training in modes.items():
            module.training = training
    state_names = model.state_dict().keys()
    for prefix, module in model.named_modules(remove_duplicate=False):
        own = [name for name, _ in module.named_buffers(recurse=False)]
        declared = tuple(getattr(module, FROZEN_BUFFERS, ()))
        if unknown := [name for name in declared if name not in own]:
            raise ValueError(
                f"{FROZEN_BUFFERS} of {type(module).__name__}: it has no buffer {unknown[0]!r}"
            )
        stays = module in still and not any(p.requires_grad for p in module.parameters())
        names = (f"{prefix}.{name}" if prefix else name for name in (own if stays else declared))
        yield from (
            name for name in names if name in state_names
        )  # others are not in the model that is sent


def complete_model(
    arrays: ArrayRecord, config: ConfigRecord, own: Frozen | None, state: RecordDict
) -> tuple[ArrayRecord, Mapping[str, Array]]:
    """Return the whole model of a message, and its frozen parameters; none where it names no hash.

    What is sent is kept in the node's ``state``, unless the node's ``own`` model has the same.

    Raises
    ------
    ValueError : for a message without them to a node that does not have them
    """
    digest = config.get(protocol.FROZEN)
    if digest is None:
        return arrays, NO_ARRAYS
    key, names = f"{STATE_PREFIX}{digest!s}", config.get(protocol.FROZEN_NAMES)
    if own is not None and own.hash == digest:
        frozen = own.arrays
    elif isinstance(names, list):
        frozen = ArrayRecord()
        for name in names:
            frozen[str(name)] = arrays[str(name)]
        for old in [name for name in state if name.startswith(STATE_PREFIX)]:
            del state[old]
        state[key] = frozen
    elif key in state.array_records:
        frozen = state.array_records[key]
    else:
        raise ValueError(
            "this node does not have the model's frozen parameters (it was restarted?); the server sends "
            "them again in its next round"
        )
    return join_frozen(arrays, frozen), frozen


def join_frozen(arrays: ArrayRecord, frozen: Mapping[str, Array]) -> ArrayRecord:
    """Return a model's record with what is frozen of it."""
    whole = ArrayRecord()
    for part in (arrays, frozen):
        for name, array in part.items():
            whole[name] = array
    return whole


@torch.no_grad()
def check_unchanged(model: nn.Module, frozen: Mapping[str, Array]) -> None:
    """Raise ``ValueError`` where training has changed a frozen parameter, which would not be sent."""
    if not frozen:
        return
    state = model.state_dict()
    for name, array in frozen.items():
        if not torch.equal(values_of(array).to(state[name]), state[name]):
            raise ValueError(
                f"the frozen {_get_kind(model, name)} {name!r} has changed in the round, and what is frozen is not "
                f"sent: {REMEDIES[_get_kind(model, name)]}"
            )


REMEDIES = {
    "parameter": "build the model with requires_grad=True for it, or make it a buffer",
    "buffer": f"leave it out of {FROZEN_BUFFERS}, or let its batch norm train",
}


def _get_kind(model: nn.Module, name: str) -> str:
    return "buffer" if name in dict(model.named_buffers(remove_duplicate=False)) else "parameter"


def has_other_state(state: RecordDict) -> bool:
    """Say whether a node keeps anything besides frozen parameters."""
    return any(not name.startswith(STATE_PREFIX) for name in state)
