"""FedBABU: nodes train the body alone, under the first model's head; each fine-tunes before evaluation.

Oh, Kim, Yun: *FedBABU: Towards Enhanced Representation for Federated Image Classification*, ICLR 2022,
Algorithm 1. The head is the model's last layer. In a round a node takes the strategy's steps with the head
fixed, as the server drew it, so that it stays the same at all nodes for the whole run. Before evaluation a
node fine-tunes head and body,

    w <- w - rate grad F_k(w; batch)                     for fine_tune_epochs epochs, from the server's model

on its own training examples. Nothing is kept. Deviations: the fine-tuning takes the examples in their own
order, so that an evaluation depends on nothing else. The model is in evaluation mode (no dropout, running
statistics as they are). Steps are plain, where the authors' optimiser has momentum and weight decay. A
strategy that moves what no node has trained (privacy's noise) moves the head, too. Reductions:
fine_tune_epochs = 0 leaves the server's model; head = [] would be FedAvg, and is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from flwr.app import RecordDict
from torch import nn

from clients.examples import Examples, compute_outputs
from clients.tasks import Task
from clients.training import LocalUpdate, Personal
from strategies.shared.checks import require

from .fedrep import PartialCorrection, hold_fixed, split_parameters


@dataclass(frozen=True)
class FedBABU(Personal):
    """A shared body under a head that no node trains, and a fine-tuned model for each node.

    Parameters
    ----------
    fine_tune_epochs : how long a node fine-tunes; 0 evaluates the server's model
    rate : its learning rate
    head : patterns of what no node trains, as in :mod:`clients.private`
    """

    fine_tune_epochs: int = 1
    rate: float = 0.05
    head: list[str] = field(default_factory=lambda: ["last"])

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        epochs = self.fine_tune_epochs
        whole = isinstance(epochs, int) and epochs >= 0
        require(whole, "client.personal.fine_tune_epochs", epochs, "a whole number, 0 or above")
        require(0 < self.rate < float("inf"), "client.personal.rate", self.rate, "above 0")

    def check(self, model: nn.Module, private: Sequence[str]) -> None:
        head, body = split_parameters(model, self.head)
        if not head or not body:
            known = ", ".join(name for name, _ in model.named_parameters())
            raise ValueError(
                f"client.personal.head={list(self.head)} is {'no' if not head else 'every'} parameter of the "
                f"model: expected last, or a pattern of some of these: {known[:200]}"
            )

    def train(self, update: LocalUpdate) -> dict[str, float]:
        everything = [p for p in update.model.parameters() if p.requires_grad]
        head, _ = split_parameters(update.model, self.head)
        with hold_fixed(head):
            return replace(
                update, corrections=[PartialCorrection(c, everything) for c in update.corrections]
            ).run()

    @torch.enable_grad()  # type: ignore[no-untyped-call]
    def personalise(
        self, model: nn.Module, examples: Examples, task: Task, batch_size: int | None, state: RecordDict
    ) -> None:
        trained = [p for p in model.parameters() if p.requires_grad]
        size, device = len(examples), trained[0].device
        model.eval()
        for _ in range(self.fine_tune_epochs):
            for start in range(0, size, batch_size or size):
                inputs, targets = examples.batch(slice(start, start + (batch_size or size)), device)
                loss, _ = task(compute_outputs(model, inputs), targets)
                slopes = torch.autograd.grad(loss, trained, materialize_grads=True)
                with torch.no_grad():
                    for p, slope in zip(trained, slopes, strict=True):
                        p.sub_(slope, alpha=self.rate)
