"""Keep frozen parameters at the node: fill them into each model, and never send them back.

:mod:`strategies.shared.arrays` says how they travel, and the server's half is
:mod:`strategies.core.frozen`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import nn

from strategies.shared import protocol
from strategies.shared.arrays import hash_values, to_array_record, values_of

KEY = "frozen-"  # begins the name of an ArrayRecord of a node's state; the hash of its values ends it
NOTHING: Mapping[str, Array] = {}


@dataclass(frozen=True)
class Frozen:
    """The frozen parameters of a model by name, and the hash of their values."""

    arrays: ArrayRecord
    hash: str

    @classmethod
    def of(cls, model: nn.Module) -> "Frozen | None":
        """Return those that a model has, copied; None where all parameters are trained."""
        names = frozen_names(model)
        if not names:
            return None
        state = model.state_dict()
        arrays = to_array_record({name: state[name].detach().clone() for name in names})
        return cls(arrays, hash_values(arrays))


def frozen_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the parameters that have ``requires_grad=False``."""
    return tuple(n for n, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad)


def complete(
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
        return arrays, NOTHING
    key, names = f"{KEY}{digest!s}", config.get(protocol.FROZEN_NAMES)
    if own is not None and own.hash == digest:
        frozen = own.arrays
    elif isinstance(names, list):
        frozen = ArrayRecord()
        for name in names:
            frozen[str(name)] = arrays[str(name)]
        for old in [name for name in state if name.startswith(KEY)]:
            del state[old]
        state[key] = frozen
    elif key in state.array_records:
        frozen = state.array_records[key]
    else:
        raise ValueError(
            "this node does not have the model's frozen parameters (it was restarted?); the server sends "
            "them again in its next round"
        )
    whole = ArrayRecord()
    for part in (arrays, frozen):
        for name, array in part.items():
            whole[name] = array
    return whole, frozen


@torch.no_grad()
def check_unchanged(model: nn.Module, frozen: Mapping[str, Array]) -> None:
    """Raise ``ValueError`` where training has changed a frozen parameter, which would not be sent."""
    if not frozen:
        return
    state = model.state_dict()
    for name, array in frozen.items():
        if not torch.equal(values_of(array).to(state[name]), state[name]):
            raise ValueError(
                f"the frozen parameter {name!r} has changed in the round, and frozen parameters are not "
                "sent: build the model with requires_grad=True for it, or make it a buffer"
            )


def has_kept_more(state: RecordDict) -> bool:
    """Say whether a node keeps anything besides frozen parameters."""
    return any(not name.startswith(KEY) for name in state)
