"""Apply corrections, clipping and the optimiser to a step's gradients."""

import io
import math
from collections.abc import Sequence

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Optimizer

from strategies.shared.arrays import view
from strategies.shared.checks import require

from .correction import Correction, OptimizerOf, Tensors, edits_of
from .fast.bare_optimizer import is_descent, step_without_hooks
from .fast.cuda_graphs import GradientPipeline, say_outside, with_sgd


class OptimizerStep:
    """What is done with the gradients of each step of a round.

    Parameters
    ----------
    parameters, optimizer : of the round
    after : what has been done to the gradients already; where it descends, the optimiser's last operation
        alone is left to do
    corrections, max_grad_norm : what is done before the optimiser's step, in this order
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        optimizer: Optimizer,
        after: GradientPipeline | None = None,
        corrections: Sequence[Correction] = (),
        max_grad_norm: float | None = None,
    ) -> None:
        self.parameters, self.after = parameters, after
        self.corrections, self.max_grad_norm = corrections, max_grad_norm
        self._step, self._group = step_without_hooks(optimizer), optimizer.param_groups[0]
        self._descends = _descends(optimizer, after) and not corrections and max_grad_norm is None

    def __call__(self, gradients: Sequence[Tensor]) -> None:
        """Change the parameters."""
        if self._descends:  # w <- w - lr d, with the rate as it is now
            torch._foreach_add_(self._group["params"], list(gradients), alpha=-self._group["lr"])
            return
        for p, gradient in zip(self.parameters, gradients, strict=True):
            p.grad = gradient
        for correction in self.corrections:
            apply(correction, self.parameters)
        if self.max_grad_norm is not None:
            with_gradient = [p for p in self.parameters if p.grad is not None]
            gradients = [p.grad for p in with_gradient if p.grad is not None]
            # Not in place, as clip_grad_norm_ is: two parameters may have one tensor for a gradient.
            for p, gradient in zip(with_gradient, clipped(gradients, self.max_grad_norm), strict=True):
                p.grad = gradient
        self._step()


def _descends(optimizer: Optimizer, after: GradientPipeline | None) -> bool:
    """Say whether SGD's last operation is all that is left to do: it always is in plain SGD."""
    if after is not None and after.descends:
        return True
    group = optimizer.param_groups[0]
    return is_descent(optimizer) and not group["momentum"] and not group["weight_decay"]


def captured_step(
    parameters: Sequence[Parameter],
    optimizer: Optimizer,
    corrections: Sequence[Correction],
    max_grad_norm: float | None,
    fresh: bool,
) -> OptimizerStep:
    """Return the update of a node whose steps are captured: as much as can be comes with the gradients.

    ``fresh``: the optimiser's state begins with the round.
    """
    edits = edits_of(corrections)
    if edits is None:
        say_outside("what a correction does, and all that comes after it,")
        return OptimizerStep(parameters, optimizer, GradientPipeline(), corrections, max_grad_norm)
    after = GradientPipeline(edits, None if max_grad_norm is None else clipped, max_grad_norm or 0.0)
    if fresh:
        return OptimizerStep(parameters, optimizer, with_sgd(after, optimizer, parameters))
    say_outside("the step of an optimiser that nodes keep")
    return OptimizerStep(parameters, optimizer, after)


def apply(correction: Correction, parameters: Sequence[Parameter]) -> None:
    """Let a correction change the gradients; what it returned would be passed over."""
    if correction.transform_gradients(parameters) is not None:  # type: ignore[func-returns-value]
        raise TypeError(f"{type(correction).__name__} returns gradients: write them to each p.grad")


def clipped(gradients: Tensors, limit: float) -> Tensors:
    """Return a node's gradients, clipped as ``nn.utils.clip_grad_norm_`` does."""
    factor = limit / (nn.utils.get_total_norm(gradients) + 1e-6)
    return torch._foreach_mul(gradients, factor.clamp(max=1.0))


KEY = "optimizer"


def check_rates(build: OptimizerOf) -> None:
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


def has_state(build: OptimizerOf) -> bool:
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
