"""pFedMe: minimise the Moreau envelopes of the nodes' losses; each node's own model stays near the shared one.

Dinh, Tran, Nguyen: *Personalized Federated Learning with Moreau Envelopes*, NeurIPS 2020 (arXiv 2006.08848),
Algorithm 1. What the nodes minimise together is min_theta F_k(theta) + (lambda / 2) ||theta - w||^2, whose
gradient is lambda (w - theta_k(w)). Each local step, on its batch, approaches theta_k(w) from w,

    theta <- theta - inner_rate (grad F_k(theta; batch) + lambda (theta - w))             inner_steps times
    w <- w - eta_l lambda (w - theta)

with eta_l ``client.optimizer.lr`` (and its optimiser). A node is evaluated with theta_k of the server's model,
which it computes in the same way from all of its training examples; the loss and accuracy of its training are
those at w. Nothing is kept. The paper's beta is ``step_size.eta``, its mean over nodes ``weighting=uniform``.
Deviation: theta begins at w in each step. The authors' code goes on from the last theta, adds a weight decay of
its own (0.001), weights nodes by examples, and evaluates the theta with which training ended. Running
statistics move ``inner_steps`` times in each local step. Reduction: inner_steps = 1 with inner_rate = 1 /
lambda is FedAvg.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from flwr.app import RecordDict
from torch import Tensor, nn

from clients.correction import Correction
from clients.examples import Examples
from clients.fast.trace import Step
from clients.tasks import Task
from clients.training import LocalUpdate, Personal
from strategies.shared.checks import require, require_count

from .uga import full_gradient


@dataclass(frozen=True)
class PFedMe(Personal):
    """Training of a shared model near all nodes' own, and each node's own before its evaluation.

    Parameters
    ----------
    strength : lambda, above 0; the paper takes 15 to 30
    inner_steps : how many steps approach a node's own model; the paper takes 5
    inner_rate : their length
    """

    strength: float = 15.0
    inner_steps: int = 5
    inner_rate: float = 0.05

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        require(0 < self.strength < float("inf"), "client.personal.strength", self.strength, "above 0")
        require_count("client.personal.inner_steps", self.inner_steps)
        valid = 0 < self.inner_rate < float("inf")
        require(valid, "client.personal.inner_rate", self.inner_rate, "above 0")
        limit = f"below 2 / strength = {2 / self.strength:g}, or the inner steps diverge"
        require(self.inner_rate * self.strength < 2, "client.personal.inner_rate", self.inner_rate, limit)

    def train(self, update: LocalUpdate) -> dict[str, float]:
        return replace(update, corrections=[*update.corrections, MoreauGradient(self)]).run()

    @torch.no_grad()
    def personalise(
        self, model: nn.Module, examples: Examples, task: Task, batch_size: int | None, state: RecordDict
    ) -> None:
        trained = [p for p in model.parameters() if p.requires_grad]
        self.take_inner_steps(trained, lambda: full_gradient(model, examples, task, batch_size))

    def take_inner_steps(
        self, parameters: Sequence[Tensor], gradient: Callable[[], Sequence[Tensor]]
    ) -> None:
        """Take the inner steps, in place, from w to theta."""
        anchors = [p.detach().clone() for p in parameters]
        for _ in range(self.inner_steps):
            for p, slope, w in zip(parameters, gradient(), anchors, strict=True):
                p.sub_(slope + self.strength * (p - w), alpha=self.inner_rate)


class MoreauGradient(Correction):
    """Takes the gradient of Moreau's envelope.

    Parameters
    ----------
    method : has the inner steps, their rate and the strength
    """

    def __init__(self, method: PFedMe) -> None:
        self.method = method

    def wrap_gradient(self, step: Step) -> Step:
        def of_envelope(
            parameters: Sequence[Tensor], *batch: Tensor
        ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
            before, sums = [p.detach().clone() for p in parameters], dict[str, Tensor]()

            def gradient() -> Sequence[Tensor]:
                slopes, sums_there = step(parameters, *batch)
                if not sums:
                    sums.update(sums_there)
                return slopes

            self.method.take_inner_steps(parameters, gradient)
            slopes = [self.method.strength * (w - p) for w, p in zip(before, parameters, strict=True)]
            for p, w in zip(parameters, before, strict=True):
                p.copy_(w)
            return slopes, sums

        return of_envelope
