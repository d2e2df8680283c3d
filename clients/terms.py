"""Terms: the step of a node whose corrections add to the loss."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .correction import Correction
from .fast.after import After
from .fast.replay import Step
from .fast.taken import EAGER, note
from .gradient import gradient_of
from .inputs import Inputs, compute_outputs
from .tasks import Task


@dataclass(frozen=True)
class WithTerms:
    """Gradient and metrics of a task's loss plus the corrections' terms; the metrics are the task's own.

    Parameters
    ----------
    model, task : what is differentiated
    corrections : whose terms are added
    """

    model: nn.Module
    task: Task
    corrections: Sequence[Correction]

    @torch.enable_grad()  # type: ignore[no-untyped-call]
    def loss(self, inputs: Inputs, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a batch's loss, which can be differentiated, and the metrics' sums over it."""
        outputs = compute_outputs(self.model, inputs)
        loss, sums = self.task(outputs, targets)
        for correction in self.corrections:
            loss = loss + _number(correction, correction.term(self.model, inputs, outputs, targets))
        return loss, sums

    def __call__(
        self, parameters: Sequence[Tensor], inputs: Inputs, targets: Tensor
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        """Return one gradient per parameter, and the metrics' sums over the batch."""
        note(EAGER)
        loss, sums = self.loss(inputs, targets)
        return torch.autograd.grad(loss, parameters, materialize_grads=True), sums


def _number(correction: Correction, term: Tensor) -> Tensor:
    """Return a correction's term, or raise ``ValueError`` where it is no single number."""
    if isinstance(term, Tensor) and term.numel() != 1:
        name, shape = type(correction).__name__, list(term.shape)
        raise ValueError(f"{name}.term returns shape {shape}: expected one number, e.g. its mean")
    return term


def step_of(
    model: nn.Module, task: Task, corrections: Sequence[Correction], trace: bool, after: After | None
) -> Step:
    """Return what computes the gradients of one round's steps, and what ``after`` makes of them."""
    adding = [correction for correction in corrections if correction.has_term]
    step: Step = (
        WithTerms(model, task, adding) if adding else gradient_of(model, task).of_round(trace, after)
    )
    for correction in corrections:
        step = correction.around(step)
    return step
