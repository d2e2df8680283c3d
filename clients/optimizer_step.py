"""Apply corrections, clipping and the optimiser to a step's gradients."""

import inspect
import io
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from strategies.shared.arrays import view_values
from strategies.shared.checks import require

from .correction import (
    Correction,
    GradientTransform,
    OptimizerFactory,
    Tensors,
    get_transforms,
    require_gradients,
)

logger = logging.getLogger("flwr.clients")


# Corrections that are edits, clipping, and SGD's weight decay and momentum are ``torch._foreach_*``
# operations that a CUDA graph can repeat. The learning rate is in none of them, since a graph would
# repeat the rate that it was captured with: w <- w - lr d, or the whole step of another optimiser,
# comes afterwards.


Clip = Callable[[Tensors, float], Tensors]


@dataclass(frozen=True)
class GradientPipeline:
    """What becomes of the gradients of one node, or of a stack of nodes.

    Parameters
    ----------
    edits : the corrections, in order
    clip, limit : a function of the gradients and the greatest norm; None where nothing is clipped
    is_descent : whether what it returns is SGD's direction d
    decay, momentum, nesterov : of SGD
    buffers : of its momentum; zeros when a round begins
    stacked : whether tensors have a first axis over nodes, of which the first ones may be left alone
    """

    edits: Sequence[GradientTransform] = ()
    clip: Clip | None = None
    limit: float = 0.0
    is_descent: bool = False
    decay: float = 0.0
    momentum: float = 0.0
    nesterov: bool = False
    buffers: Tensors = ()
    stacked: bool = False

    def __call__(self, parameters: Sequence[Tensor], raw_gradients: Sequence[Tensor]) -> Tensors:
        """Return d where it descends, else the gradients that the optimiser gets.

        Parameters
        ----------
        parameters : where the gradients were taken
        raw_gradients : nothing done to them
        """
        values: Tensors = list(parameters)
        gradients: Tensors = list(raw_gradients)
        for edit in self.edits:
            fixed = [self._first(tensors, gradients) for tensors in edit.fixed]
            edited = edit.apply(gradients, values, *fixed, *edit.numbers)
            require_gradients(f"gradient_transform {edit.name}", edited, gradients)
            gradients = edited
        if self.clip is not None:
            gradients = self.clip(gradients, self.limit)
        if self.decay:
            gradients = torch._foreach_add(gradients, values, alpha=self.decay)
        if self.momentum:
            buffers = self._first(self.buffers, gradients)
            torch._foreach_mul_(buffers, self.momentum)
            torch._foreach_add_(buffers, gradients)
            gradients = (
                torch._foreach_add(gradients, buffers, alpha=self.momentum) if self.nesterov else buffers
            )
        return gradients

    def _first(self, tensors: Tensors, gradients: Tensors) -> Tensors:
        """Return the part of the nodes that have not finished."""
        return [t[: len(g)] for t, g in zip(tensors, gradients, strict=True)] if self.stacked else tensors

    @property
    def kind(self) -> tuple[object, ...]:
        """A key: equal for two pipelines that one CUDA graph can serve, each in its own memory."""
        numbers = self.limit, self.is_descent, self.decay, self.momentum, self.nesterov, self.stacked
        shapes = tuple(tensor.shape for tensor in self.list_tensors())
        return tuple(edit.kind for edit in self.edits), self.clip, numbers, shapes

    def list_tensors(self) -> list[Tensor]:
        """Return all tensors that it reads, or writes, besides parameters and gradients."""
        return [t for edit in self.edits for tensors in edit.fixed for t in tensors] + list(self.buffers)

    def with_tensors(self, memory: Sequence[Tensor]) -> "GradientPipeline":
        """Return the same with other tensors in place of :meth:`list_tensors`."""
        ahead = iter(memory)
        edits = [replace(e, fixed=[[next(ahead) for _ in ts] for ts in e.fixed]) for e in self.edits]
        return replace(self, edits=edits, buffers=[next(ahead) for _ in self.buffers])


def can_capture(device: torch.device) -> bool:
    """Say whether steps on a device can be captured."""
    return device.type == "cuda"


def add_sgd_step(
    after: GradientPipeline, optimizer: Optimizer, parameters: Sequence[Tensor]
) -> GradientPipeline:
    """Return the pipeline with a fresh optimiser's step, but for its last operation, where that is possible.

    Momentum begins with zeros: torch's first step is then the same, unless it has dampening. The log says
    once what is left out.
    """
    if not is_descent(optimizer):
        log_uncaptured(f"the step of {type(optimizer).__name__} as it is configured")
        return after
    group = optimizer.param_groups[0]
    momentum = float(group["momentum"])
    return replace(
        after,
        is_descent=True,
        decay=float(group["weight_decay"]),
        momentum=momentum,
        nesterov=bool(group["nesterov"]),
        buffers=[torch.zeros_like(p) for p in parameters] if momentum else (),
    )


@lru_cache(maxsize=64)
def log_uncaptured(what: str) -> None:
    """Say, once, what is not part of captured steps."""
    logger.warning(
        "%s is not part of the CUDA graph of a step: its operations are launched one by one", what
    )


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
        self._is_descent = _ends_in_descent(optimizer, after) and not corrections and max_grad_norm is None

    def __call__(self, gradients: Sequence[Tensor]) -> None:
        """Change the parameters."""
        if self._is_descent:  # w <- w - lr d, with the rate as it is now
            torch._foreach_add_(self._group["params"], list(gradients), alpha=-self._group["lr"])
            return
        for p, gradient in zip(self.parameters, gradients, strict=True):
            p.grad = gradient
        for correction in self.corrections:
            apply_correction(correction, self.parameters)
        if self.max_grad_norm is not None:
            with_gradient = [p for p in self.parameters if p.grad is not None]
            gradients = [p.grad for p in with_gradient if p.grad is not None]
            # Not in place, as clip_grad_norm_ is: two parameters may have one tensor for a gradient.
            for p, gradient in zip(
                with_gradient, clip_gradients(gradients, self.max_grad_norm), strict=True
            ):
                p.grad = gradient
        self._step()


def _ends_in_descent(optimizer: Optimizer, after: GradientPipeline | None) -> bool:
    """Say whether SGD's last operation is all that is left to do: it always is in plain SGD."""
    if after is not None and after.is_descent:
        return True
    group = optimizer.param_groups[0]
    return is_descent(optimizer) and not group["momentum"] and not group["weight_decay"]


def make_captured_update(
    parameters: Sequence[Parameter],
    optimizer: Optimizer,
    corrections: Sequence[Correction],
    max_grad_norm: float | None,
    fresh: bool,
) -> OptimizerStep:
    """Return the update of a node whose steps are captured: as much of it as possible is in the graph.

    ``fresh``: the optimiser's state begins with the round.
    """
    edits = get_transforms(corrections)
    if edits is None:
        log_uncaptured("what a correction does, and all that comes after it,")
        return OptimizerStep(parameters, optimizer, GradientPipeline(), corrections, max_grad_norm)
    after = GradientPipeline(edits, None if max_grad_norm is None else clip_gradients, max_grad_norm or 0.0)
    if fresh:
        return OptimizerStep(parameters, optimizer, add_sgd_step(after, optimizer, parameters))
    log_uncaptured("the step of an optimiser that nodes keep")
    return OptimizerStep(parameters, optimizer, after)


def apply_correction(correction: Correction, parameters: Sequence[Parameter]) -> None:
    """Let a correction change the gradients; refuse one that returns them, which would have no effect."""
    if correction.transform_gradients(parameters) is not None:  # type: ignore[func-returns-value]
        raise TypeError(f"{type(correction).__name__} returns gradients: write them to each p.grad")


def clip_gradients(gradients: Tensors, limit: float) -> Tensors:
    """Return a node's gradients, clipped as ``nn.utils.clip_grad_norm_`` does."""
    factor = limit / (nn.utils.get_total_norm(gradients) + 1e-6)
    return torch._foreach_mul(gradients, factor.clamp(max=1.0))


# ``torch.optim`` without what torch wraps around it: not public in torch, hence here alone.


def avoid_compiler_import() -> None:
    """Keep the first optimiser of a process from importing torch's compiler, which takes a second.

    It would tell the compiler to pass over these methods; here nothing is compiled.
    """
    for method in (Optimizer.add_param_group, Optimizer.state_dict, Optimizer.load_state_dict):
        plain = inspect.unwrap(method)
        vars(plain).setdefault("__dynamo_disable", plain)


def step_without_hooks(optimizer: Optimizer) -> Callable[[], None]:
    """Return the optimiser's step without what torch wraps around it for its profiler.

    That costs more than the step itself on small models, and so does asking, step by step, whether the
    parameters are on an accelerator. What others have wrapped around it stays.
    """
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None and group["params"][0].device.type == "cpu":
            group["foreach"] = False  # what None means there
    if has_hooks(optimizer):
        return optimizer.step  # type: ignore[return-value]
    return partial(inspect.unwrap(type(optimizer).step, stop=_is_foreign), optimizer)


def has_hooks(optimizer: Optimizer) -> bool:
    """Say whether this optimiser's step is more than its class's: it has hooks, or was replaced."""
    before, after = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    everyones = _global_optimizer_pre_hooks or _global_optimizer_post_hooks
    return bool(before or after or everyones or "step" in vars(optimizer))


def is_descent(optimizer: Optimizer) -> bool:
    """Say whether a fresh optimiser's steps are w <- w - lr d, with d of the gradients and its momentum.

    It is torch's SGD with one parameter group, without hooks, dampening, ``maximize`` and the like.
    """
    (group, *more) = optimizer.param_groups
    if type(optimizer) is not SGD or more or has_hooks(optimizer) or isinstance(group["lr"], Tensor):
        return False
    return not any(group[name] for name in ("dampening", "maximize", "differentiable", "fused"))


def _is_foreign(step: Callable[..., object]) -> bool:
    """Say whether a function was written outside of torch; a wrapper has the name of what it wraps."""
    return not str(getattr(step, "__globals__", {}).get("__name__")).startswith("torch.")


# What a node keeps of its optimiser from round to round.


STATE_KEY = "optimizer"


def check_rates(build: OptimizerFactory) -> None:
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


def has_state(build: OptimizerFactory) -> bool:
    """Say whether the optimiser has a state; SGD without momentum has none."""
    built = build([Parameter(torch.zeros(1))])
    return not (type(built) is SGD and built.param_groups[0]["momentum"] == 0)


def prepare_optimizer(optimizer: Optimizer, factor: float, memory: RecordDict | None) -> float:
    """Load what ``list_tensors`` keeps, scale the learning rates by ``factor``; return the first one.

    A kept state brings its moments; the learning rate is the new optimiser's own.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    if memory is not None and STATE_KEY in memory.array_records:
        stored = io.BytesIO(view_values(memory.array_records[STATE_KEY]["state"]).tobytes())
        optimizer.load_state_dict(torch.load(stored, weights_only=True))
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * factor
    return float(optimizer.param_groups[0]["lr"])


def save_state(optimizer: Optimizer, memory: RecordDict) -> None:
    """Store the optimiser's state in the node's ``context.state``, to be read on any device."""
    stored, state = io.BytesIO(), optimizer.state_dict()
    near = {
        k: {name: _copy_to_host(value) for name, value in of_one.items()}
        for k, of_one in state["state"].items()
    }
    torch.save({**state, "state": near}, stored)
    values = np.frombuffer(stored.getvalue(), dtype=np.uint8)
    memory[STATE_KEY] = ArrayRecord({"state": Array(values)})


def _copy_to_host(value: object) -> object:
    return value.cpu() if isinstance(value, Tensor) else value
