"""Unbiased gradient aggregation on the node: a gradient at w_t that has seen the local steps.

Yao, Huang, Zhang, Li, Sun: *Federated Learning with Unbiased Gradient Aggregation and Controllable Meta
Updating*, NeurIPS workshop on federated learning, 2019, section 3. A node takes all but its last epoch as
*keep-trace* steps, whose dependence on w_t is kept, and then differentiates the loss of all of its examples
by w_t, through these steps (second order):

    v_0 = w_t,      v_i = v_{i-1} - eta_l grad L(v_{i-1}; batch i),      g_k = d L(v_last; D_k) / d w_t

It returns w_t - eta_l g_k, so that the server's pseudo-gradient is eta_l g_k: the paper's server learning
rate is ``step_size.eta`` times eta_l. A node remembers all of its steps at once, and the last gradient is
of all of its examples in one batch: memory grows with both. Reduction: one epoch (or one step) is FedSGD.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.func import functional_call
from torch.nn import Parameter
from torch.optim import SGD

from clients.examples import Examples, arguments_of, compute_outputs
from clients.tasks import Task
from clients.training import LocalTraining, LocalUpdate
from strategies.shared import protocol

CORRECTIONS_ERROR = (
    "client=keep_trace differentiates through plain gradient steps, and takes no corrections: choose a "
    "strategy that asks for none, such as fedavg or fedmeta, corrections=none, personal=none and no random "
    "mask"
)
PLAIN_SGD = {"momentum": 0, "weight_decay": 0, "dampening": 0, "nesterov": False, "maximize": False}


@dataclass(frozen=True)
class TracedUpdate(LocalUpdate):
    """The keep-trace steps of one round, and the gradient at its start."""

    @torch.enable_grad()  # type: ignore[no-untyped-call]
    def run(self) -> dict[str, float]:
        """Take the steps; return their metrics.

        Raises
        ------
        ValueError : for corrections, which the trace would not see
        """
        if self.corrections:
            raise ValueError(CORRECTIONS_ERROR)
        start = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        rate = self.training.lr * self.training.schedule(self.server_round)
        values: dict[str, Tensor] = dict(start)
        totals, num_examples, steps = Counter[str](), 0, self.training.steps(len(self.examples))
        draws = torch.Generator().manual_seed(self.seed)
        for inputs, targets in islice(self.batches(draws), steps - 1):
            loss, sums = self.task(functional_call(self.model, values, *arguments_of(inputs)), targets)
            slopes = grad(loss, [*values.values()], create_graph=True, materialize_grads=True)
            values = {n: v - rate * g for (n, v), g in zip(values.items(), slopes, strict=True)}
            totals.update({name: float(value) for name, value in sums.items()})
            num_examples += len(targets)
        inputs, targets = self.examples.batch(slice(None), next(iter(start.values())).device, draws)
        loss, sums = self.task(functional_call(self.model, values, *arguments_of(inputs)), targets)
        slopes = grad(loss, [*start.values()], materialize_grads=True)
        with torch.no_grad():
            for p, g in zip(start.values(), slopes, strict=True):
                p.add_(g, alpha=-rate)
        totals.update({name: float(value) for name, value in sums.items()})
        means = {name: total / (num_examples + len(targets)) for name, total in totals.items()}
        return {**means, protocol.LOCAL_STEPS: steps, protocol.LEARNING_RATE: rate}


@dataclass(frozen=True, kw_only=True)
class KeepTrace(LocalTraining):
    """Local training that ends in a gradient at the model that was sent; its optimiser is plain SGD."""

    can_correct: ClassVar[bool] = False
    update_type: ClassVar[type[LocalUpdate]] = TracedUpdate
    local_epochs: int | None = 2

    def __post_init__(self) -> None:
        """Refuse what would not be part of the trace."""
        super().__post_init__()
        built = self.optimizer([Parameter(torch.zeros(1))])
        plain = type(built) is SGD and all(built.param_groups[0][k] == v for k, v in PLAIN_SGD.items())
        if not plain or self.keep_optimizer or self.max_grad_norm is not None:
            raise ValueError(
                "client=keep_trace differentiates through plain gradient steps: leave client.optimizer at "
                "SGD with lr alone, and client.keep_optimizer and client.max_grad_norm as they are"
            )
        if self.corrections or self.personal:
            raise ValueError(CORRECTIONS_ERROR)

    def steps(self, size: int) -> int:
        """Return how many steps a node with ``size`` examples takes: its last epoch is one."""
        if self.local_steps:
            return self.local_steps
        return (super().steps(size) - self.steps_per_epoch(size)) + 1


# Both are means over training's batches, weighted by their sizes; unweighted where a batch's loss is a sum
# over its examples. The model is in evaluation mode meanwhile: no dropout, running statistics as they are.


@torch.enable_grad()  # type: ignore[no-untyped-call]
def full_gradient(model: nn.Module, examples: Examples, task: Task, batch_size: int | None) -> list[Tensor]:
    """Return the gradient at the model's parameters."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    for loss, share in _iterate_losses(model, examples, task, batch_size):
        for sum_, g in zip(
            total, torch.autograd.grad(loss, parameters, materialize_grads=True), strict=True
        ):
            sum_.add_(g, alpha=share)
    return total


@torch.no_grad()
def full_loss(model: nn.Module, examples: Examples, task: Task, batch_size: int | None) -> float:
    """Return the loss that the node minimises, which need not be the one that the task reports."""
    return float(sum(share * loss for loss, share in _iterate_losses(model, examples, task, batch_size)))


def _iterate_losses(
    model: nn.Module, examples: Examples, task: Task, batch_size: int | None
) -> Iterator[tuple[Tensor, float]]:
    """Yield the loss of each batch, and its weight in the mean."""
    size, device = len(examples), next(model.parameters()).device
    model.eval()
    starts = range(0, size, batch_size or size)
    for start in starts:
        inputs, targets = examples.batch(slice(start, start + (batch_size or size)), device)
        loss = task(compute_outputs(model, inputs), targets)[0]
        yield loss, 1 / len(starts) if task.sums else len(targets) / size
