"""FedDF beside a loop of torch's gradients that is written from its docstring alone, without torch.optim.

Adam divides by the gradient's own size. Where nodes hardly differ, that is little more than rounding, and rounding
grows ten thousand times and more. So the bounds depend on the client's rate.
"""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from baselines.experiment import experiment
from helpers.agreement.ways import full, ours

STEPS, RATE, ROUNDS, EPOCHS = 7, 0.01, 3, 2
SETTING = (
    "model=small strategy=feddf client.batch_size=null validation_size=12 "
    f"strategy.distillation.batch_size=50 strategy.distillation.steps={STEPS} "
    f"strategy.distillation.lr={RATE} client.local_epochs={EPOCHS}"
)
BOUNDS = {  # by client rate and precision; measured: at most 2e-11, 2e-11, 3e-15, 4e-6
    (0.01, "float64"): 1e-9,
    (0.1, "float64"): 1e-9,
    (0.5, "float64"): 1e-13,
    (0.5, "float32"): 1e-4,
}


def descended(model: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


class Loop:
    """Algorithm 1 with full batches."""

    def __init__(self, overrides: str, client_rate: float) -> None:
        setup = experiment.load(full(overrides))
        self.model, self.rate = setup.model(), client_rate
        nodes = [setup.node(k).train for k in range(setup.settings.num_nodes)]
        self.data = [each.batch(slice(None), torch.device("cpu")) for each in nodes]
        self.inputs, _ = setup.validation_examples.batch(slice(None), torch.device("cpu"))

    @torch.no_grad()
    def moved(self, model: nn.Module, by: list[Tensor]) -> None:
        for p, each in zip(model.parameters(), by, strict=True):
            p.sub_(each)

    def trained(self, inputs: Tensor, targets: Tensor) -> nn.Module:
        model = copy.deepcopy(self.model)
        for _ in range(EPOCHS):
            slopes = descended(model, cross_entropy(model(inputs), targets))
            self.moved(model, [self.rate * slope for slope in slopes])
        return model

    @torch.no_grad()
    def mean(self, ends: list[nn.Module]) -> nn.Module:
        """Return w - sum_k (n_k / n) (w - w_k)."""
        student = copy.deepcopy(self.model)
        total = sum(len(targets) for _, targets in self.data)
        for end, (_, targets) in zip(ends, self.data, strict=True):
            share = len(targets) / total
            pairs = zip(self.model.parameters(), end.parameters(), strict=True)
            self.moved(student, [share * (w - w_k) for w, w_k in pairs])
        return student

    def take_round(self) -> dict[str, Tensor]:
        ends = [self.trained(*batch) for batch in self.data]
        student = self.mean(ends)
        with torch.no_grad():
            wanted = (sum((end(self.inputs) for end in ends), torch.zeros(())) / len(ends)).softmax(-1)
        first = [torch.zeros_like(p) for p in student.parameters()]
        second = [torch.zeros_like(p) for p in student.parameters()]
        for step in range(STEPS):
            logs = student(self.inputs).log_softmax(-1)
            slopes = descended(student, (wanted * (wanted.log() - logs)).sum(-1).mean())
            rate = RATE * (1 + math.cos(math.pi * step / STEPS)) / 2
            way = []
            for slope, m, v in zip(slopes, first, second, strict=True):
                m.mul_(0.9).add_(0.1 * slope)
                v.mul_(0.999).add_(0.001 * slope**2)
                along, size = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.999 ** (step + 1))
                way.append(rate * along / (size.sqrt() + 1e-8))
            self.moved(student, way)
        self.model = student
        return {name: value.detach().clone() for name, value in student.state_dict().items()}

    def rounds(self) -> list[dict[str, Tensor]]:
        return [self.take_round() for _ in range(ROUNDS)]


def off(rounds: list[dict[str, Tensor]], others: list[dict[str, Tensor]]) -> float:
    """Return the largest difference, as a share of its array's largest number."""
    pairs = [(one[k], other[k]) for one, other in zip(rounds, others, strict=True) for k in other]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


@pytest.mark.parametrize(("client_rate", "precision"), BOUNDS)
def test_feddf_is_its_rule_to_rounding(client_rate: float, precision: str) -> None:
    overrides = f"{SETTING} model.precision={precision} client.optimizer.lr={client_rate}"
    actual = [each.state for each in ours(overrides, rounds=ROUNDS).rounds]
    assert off(actual, Loop(overrides, client_rate).rounds()) <= BOUNDS[client_rate, precision]
