"""An optimiser's state between rounds: fresh, or kept at the node."""

import io
import math

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Optimizer

from strategies.shared.arrays import view
from strategies.shared.checks import require

from .correction import OptimizerOf

KEY = "optimizer"


def check(build: OptimizerOf) -> None:
    """Raise ``ValueError`` in one line for rates that torch refuses (lr, ...), and infinite ones."""
    try:
        (group,) = build([Parameter(torch.zeros(1))]).param_groups
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"client.optimizer cannot be built ({error}): expected numbers such as lr=0.1"
        ) from error
    for name, value in group.items():  # torch lets NaN and infinity through
        infinite = isinstance(value, float) and math.isinf(value)
        require(not infinite, f"client.optimizer.{name}", value, "a number")


def has_any(build: OptimizerOf) -> bool:
    """Say whether the optimiser has a state; SGD without momentum has none."""
    built = build([Parameter(torch.zeros(1))])
    return not (type(built) is SGD and built.param_groups[0]["momentum"] == 0)


def prepare(optimizer: Optimizer, factor: float, memory: RecordDict | None) -> float:
    """Load what ``memory`` keeps, scale the learning rates by ``factor``; return the first one.

    A kept state brings its moments; the learning rate is the new optimiser's own.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    if memory is not None and KEY in memory.array_records:
        stored = io.BytesIO(view(memory.array_records[KEY]["state"]).tobytes())
        optimizer.load_state_dict(torch.load(stored, weights_only=True))
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * factor
    return float(optimizer.param_groups[0]["lr"])


def keep(optimizer: Optimizer, memory: RecordDict) -> None:
    """Store the optimiser's state in the node's ``context.state``, to be read on any device."""
    stored, state = io.BytesIO(), optimizer.state_dict()
    near = {
        k: {name: _near(value) for name, value in of_one.items()} for k, of_one in state["state"].items()
    }
    torch.save({**state, "state": near}, stored)
    values = np.frombuffer(stored.getvalue(), dtype=np.uint8)
    memory[KEY] = ArrayRecord({"state": Array(values)})


def _near(value: object) -> object:
    return value.cpu() if isinstance(value, Tensor) else value
