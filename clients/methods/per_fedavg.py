"""Per-FedAvg: train a shared model for the loss after one more local step.

Fallah, Mokhtari, Ozdaglar: *Personalized Federated Learning: A Meta-Learning Approach*, NeurIPS 2020 (arXiv
2002.07948), Algorithm 1. What the nodes minimise together is the loss after a step, F_k(w - alpha grad
F_k(w)). Each local step takes three batches D, D' and D'':

    w' = w - alpha grad F_k(w; D)
    w <- w - beta (I - alpha H_k(w; D'')) grad F_k(w'; D')

with beta ``client.optimizer.lr`` (and its optimiser). D' is the batch that FedAvg would take; D and D'' are
drawn from another shuffle of the node's examples. ``first_order`` leaves H_k out, the paper's FO. A node is
evaluated after one step of alpha on all of its training examples; the loss and accuracy of its training are
those at w'. Deviation: H_k's product with the gradient is exact, where the paper's HF takes the difference
of two gradients; so the model needs second derivatives, which cuDNN's recurrent layers lack. Reduction:
alpha = 0 is FedAvg, if the model draws no random numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from flwr.app import RecordDict
from torch import Tensor, nn

from clients.correction import Correction
from clients.examples import Examples, Inputs
from clients.fast.trace import Step
from clients.tasks import Task
from clients.training import CorrectedTask, LocalUpdate, Personal
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, torch_seed

from .uga import full_gradient


@torch.enable_grad()  # type: ignore[no-untyped-call]
def compute_hessian_product(
    loss: Tensor, parameters: Sequence[Tensor], vectors: Sequence[Tensor]
) -> list[Tensor]:
    """Return H v, a tensor for each parameter, as in ``vectors`` (Pearlmutter, 1994).

    ``loss`` is differentiated twice: its operations need second derivatives.
    """
    slopes = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
    curved = [(slope, v) for slope, v in zip(slopes, vectors, strict=True) if slope.requires_grad]
    if not curved:  # the loss is linear
        return [torch.zeros_like(v) for v in vectors]
    outputs, along = zip(*curved, strict=True)
    return list(torch.autograd.grad(outputs, parameters, along, materialize_grads=True))


GradientAndMetrics = tuple[Sequence[Tensor], dict[str, Tensor]]  # a step's gradient and metrics


@dataclass(frozen=True)
class PerFedAvg(Personal):
    """Training for the model after one more step, which the node takes before its evaluation.

    Parameters
    ----------
    alpha : length of that step, 0 or above
    first_order : leave out the Hessian, which costs about as much as the rest of a step
    """

    alpha: float = 0.01
    first_order: bool = False

    def __post_init__(self) -> None:
        """Refuse a negative step."""
        require(0 <= self.alpha < float("inf"), "client.personal.alpha", self.alpha, "0 or above")

    def train(self, update: LocalUpdate) -> dict[str, float]:
        examples, training = update.examples, update.training
        steps = training.steps(len(examples)) * (1 if self.first_order else 2)
        draws = torch.Generator().manual_seed(torch_seed(update.seed, Purpose.META))
        device = next(update.model.parameters()).device
        others = training.with_duration(steps=steps).batches(examples, device, draws)
        return replace(update, corrections=[*update.corrections, MetaGradient(self, update, others)]).run()

    @torch.no_grad()
    def personalise(
        self, model: nn.Module, examples: Examples, task: Task, batch_size: int | None, state: RecordDict
    ) -> None:
        gradient = full_gradient(model, examples, task, batch_size)
        trained = (p for p in model.parameters() if p.requires_grad)
        for p, g in zip(trained, gradient, strict=True):
            p.sub_(g, alpha=self.alpha)


class MetaGradient(Correction):
    """Takes the gradient after a step of alpha, and differentiates through that step.

    Parameters
    ----------
    method : has alpha and the order
    update : the local update that it is a part of
    others : the batches D and, unless of the first order, D'', in turn
    """

    def __init__(
        self, method: PerFedAvg, update: LocalUpdate, others: Iterator[tuple[Inputs, Tensor]]
    ) -> None:
        self.method, self.others = method, others
        terms = [each for each in update.corrections if each.has_loss_term or each.replaces_loss]
        self.objective = CorrectedTask(update.model, update.task, terms)

    def wrap_gradient(self, step: Step) -> Step:
        alpha = self.method.alpha

        def after_a_step(parameters: Sequence[Tensor], *batch: Tensor) -> GradientAndMetrics:
            before = [p.detach().clone() for p in parameters]
            slopes, _ = step(parameters, *next(self.others))
            for p, slope in zip(parameters, slopes, strict=True):
                p.sub_(slope, alpha=alpha)
            slopes, sums = step(parameters, *batch)
            for p, value in zip(parameters, before, strict=True):
                p.copy_(value)
            if self.method.first_order:
                return slopes, sums
            loss, _ = self.objective.loss(*next(self.others))
            curved = compute_hessian_product(loss, parameters, slopes)
            return [slope.sub(each, alpha=alpha) for slope, each in zip(slopes, curved, strict=True)], sums

        return after_a_step
