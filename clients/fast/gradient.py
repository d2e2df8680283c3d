"""The gradient of one batch, at the cost of its arithmetic.

On a small model, autograd's bookkeeping costs several times the arithmetic. A step that is repeated
often enough is therefore traced once, into the plain operations that autograd itself would run. It is
replayed without autograd: the same operations in the same order, hence the same bits. That holds only where
a step changes nothing but its results, and only while nobody changes the model's attributes. On a GPU the
recorded step is also captured as one CUDA graph.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.func import functional_call

from clients import optimizer_step
from clients.examples import compute_outputs, has_several_inputs
from clients.optimizer_step import GradientPipeline
from clients.tasks import Task

from .cuda_graphs import EAGER_STEPS, GraphCache
from .guards import ModelSnapshot, SideEffectCheck
from .trace import PrecisionRecorder, Step, are_close, pool_by_pixels, record_step, without_tf32

logger = logging.getLogger("flwr.clients")

SEVERAL_INPUTS = "examples are of several tensors"
EAGER_STEPS_BEFORE_TRACE = 200  # eager steps of one shape; tracing costs about a second, mostly imports


# An eager step is launched operation by operation, a recorded one replayed without autograd, a captured
# one replayed as one graph of the accelerator's. A step of batched nodes counts once.


EAGER, RECORDED, CAPTURED = "eager", "recorded", "captured"
_step_counts: Counter[str] = Counter({EAGER: 0, RECORDED: 0, CAPTURED: 0})


def count_step(way: str) -> None:
    """Count a step."""
    _step_counts[way] += 1


def count_steps() -> dict[str, int]:
    """Return how many steps were taken in each way since the process began."""
    return dict(_step_counts)


def steps_since(before: dict[str, int]) -> dict[str, int]:
    """Return how many were taken in each way after :func:`count_steps` returned ``before``."""
    return {way: count - before[way] for way, count in _step_counts.items()}


class Gradient:
    """Gradient and metrics of a model's task on a batch, a pair of inputs and targets.

    Parameters
    ----------
    model, task : what is differentiated; the parameters are those that require a gradient
    """

    decompositions: ClassVar[dict[OpOverload, Callable[..., object]]] = {  # recorded as other operations
        torch.ops.aten.max_pool2d_with_indices.default: pool_by_pixels
    }

    def __init__(self, model: nn.Module, task: Task) -> None:
        self.model = model
        self.task = task
        self.names = self._get_parameters()
        self._steps: dict[object, tuple[str, Step]] = {}  # and how each is taken
        self._num_calls: Counter[object] = Counter()
        self._snapshot: ModelSnapshot | None = None  # from the first recorded step on
        self._after: GradientPipeline | None = None
        self._all_graphs: GraphCache | None = None
        self._graphs: GraphCache | None = None  # of this round; None where steps are not captured

    def for_round(self, trace: bool, after: GradientPipeline | None = None) -> Step:
        """Return what computes the steps of one round, for the parameters that are trained in it.

        The steps return ``after``'s results for the gradients. Without ``after`` nothing is captured, as where
        gradients are not taken at the model's parameters. If the model has changed since the last round, its
        recorded steps are dropped. ``trace=False`` keeps to autograd.
        """
        self.names, self._after = self._get_parameters(), after
        if not trace:
            return self._untraced
        self._forget_if_outdated()
        self._graphs = None
        if after is not None and optimizer_step.can_capture(next(self.model.parameters()).device):
            self._graphs = self._all_graphs = self._all_graphs or GraphCache()
            self._after = self._graphs.begin(after)
        return self

    def __call__(
        self, parameters: Sequence[Tensor], *batch: Tensor
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        """Return one gradient per parameter, and the metrics' sums over the batch.

        ``batch`` is what the model takes, the targets, and whatever else the task takes. Call it under
        ``torch.no_grad``.
        """
        inputs = batch[0]
        if has_several_inputs(inputs):
            if not self._num_calls[SEVERAL_INPUTS]:
                logger.debug("not traced: %s", SEVERAL_INPUTS)
            self._num_calls[SEVERAL_INPUTS] += 1
            return self._untraced(parameters, *batch)
        if len(parameters) != len(self.names):
            self.names = self._get_parameters()
        key = (self.names, len(batch), parameters[0].shape, inputs.shape, inputs.dtype, inputs.device)
        step = self._steps.get(key)
        if step is None or self._is_outdated():
            results = self._take_first_steps(key, parameters, *batch)
        elif self._graphs and step[0] == RECORDED:
            graph = self._graphs.find(key, step[1], parameters, batch)
            count_step(RECORDED if graph is None else CAPTURED)
            if graph is not None:
                return graph(parameters, *batch)
            results = step[1](parameters, *batch)
        else:
            count_step(step[0])
            results = step[1](parameters, *batch)
        return results if self._after is None else self.finish_step(parameters, *results)

    def _is_outdated(self) -> bool:
        """Say whether an attribute has become another since a step was recorded, and forget the steps."""
        return (
            self._snapshot is not None
            and not self._snapshot.has_same_objects()
            and self._forget_if_outdated()
        )

    def _take_first_steps(
        self, key: object, parameters: Sequence[Tensor], *batch: Tensor
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        """Take a step that is not recorded yet; record it when it is time."""
        self._num_calls[key] += 1
        count_step(EAGER)
        after = (
            EAGER_STEPS if optimizer_step.can_capture(parameters[0].device) else EAGER_STEPS_BEFORE_TRACE
        )
        if self._num_calls[key] <= after or self._forget_if_outdated():
            return self._eager(parameters, *batch)
        if self._snapshot is None:
            self._snapshot = ModelSnapshot(self.model, self.task)
        results, self._steps[key] = self._record_step(parameters, *batch)
        return results

    @without_tf32()
    def _record_step(
        self, parameters: Sequence[Tensor], *batch: Tensor
    ) -> tuple[tuple[Sequence[Tensor], dict[str, Tensor]], tuple[str, Step]]:
        """Take a step by autograd; return its results, and how the next ones are taken."""
        watch = SideEffectCheck(self.model, self.task)
        with PrecisionRecorder() as precision:
            gradients, sums = self._eager(parameters, *batch)
        taken: tuple[str, Step] = EAGER, self._eager
        if reason := watch.find_side_effect():
            logger.debug("not traced: %s", reason)
        elif (step := self._trace(parameters, *batch)) != self._eager:
            if are_close(step(parameters, *batch)[0], gradients, precision.eps):
                taken = RECORDED, step
            else:
                logger.debug("not traced: the recorded step computes something else")
        return (gradients, sums), taken

    def finish_step(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], sums: dict[str, Tensor]
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        """Return what a step of this round returns, given its gradients and its metrics' sums."""
        return (gradients if self._after is None else self._after(parameters, gradients)), sums

    def _untraced(
        self, parameters: Sequence[Tensor], *batch: Tensor
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        return self.finish_step(parameters, *self.eager(parameters, *batch))

    def eager(
        self, parameters: Sequence[Tensor], *batch: Tensor
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        """Return the gradients by autograd, without what comes after them."""
        count_step(EAGER)
        return self._eager(parameters, *batch)

    def _forget_if_outdated(self) -> bool:
        """Forget what was recorded, and count anew, if somebody has changed an attribute since."""
        if self._snapshot is None or self._snapshot.is_unchanged():
            return False
        self._snapshot = ModelSnapshot(self.model, self.task)
        self._steps.clear()
        self._num_calls.clear()
        if self._all_graphs:
            self._all_graphs.clear()
        return True

    def _get_parameters(self) -> tuple[str, ...]:
        return tuple(name for name, p in self.model.named_parameters() if p.requires_grad)

    @torch.enable_grad()  # type: ignore[no-untyped-call]
    def _eager(
        self, parameters: Sequence[Tensor], *batch: Tensor
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        loss, sums = self.task(compute_outputs(self.model, batch[0]), *batch[1:])
        return torch.autograd.grad(loss, parameters, materialize_grads=True), sums

    @torch.enable_grad()  # type: ignore[no-untyped-call]
    def _pure(
        self, parameters: Sequence[Tensor], *batch: Tensor
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        """Compute the same from the arguments alone."""
        leaves = [p.detach().requires_grad_() for p in parameters]
        loss, sums = self._loss(leaves, *batch)
        return torch.autograd.grad(loss, leaves, materialize_grads=True), sums

    def _loss(self, parameters: Sequence[Tensor], *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        outputs = functional_call(self.model, dict(zip(self.names, parameters, strict=True)), (batch[0],))
        return self.task(outputs, *batch[1:])

    def _trace(self, parameters: Sequence[Tensor], *batch: Tensor) -> Step:
        """Record the step; keep to autograd where a replay would not be the same.

        That is where the model has buffers, draws random numbers, changes its arguments in place, or decides
        by tensors' values. Whatever else the step reads is fixed as it is now.
        """
        if next(self.model.buffers(), None) is not None:
            return self._eager
        return record_step(self._pure, self.decompositions, parameters, batch) or self._eager


@lru_cache(maxsize=8)
def get_gradient(model: nn.Module, task: Task) -> Gradient:
    """Return the gradient of a model's task, kept so that it is traced once per process."""
    return Gradient(model, task)
