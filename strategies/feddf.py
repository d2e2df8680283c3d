"""FedDF: the server's model learns what the nodes' models predict together.

Lin, Kong, Stich, Jaggi: *Ensemble Distillation for Robust Model Fusion in Federated Learning*, NeurIPS 2020,
Algorithm 1. The server has inputs x without labels, and f(w; x) are logits:

    v      = w[t] - eta P( sum_k (n_k / n) Delta_k )            the round's step, with whatever parts
    v      <- v - Adam's step on KL( softmax( 1/K sum_k f(w[t,k]; x) ) || softmax( f(v; x) ) )       ``steps`` times
    w[t+1] = v                                                  w[t,k] = w[t] - Delta_k, all K nodes of the round

The inputs are those of the examples that ``validation_size`` sets aside, or another data set's
(``server_inputs``); labels are not looked at.
A part of the update rule (a mask, a median, eta) decides where the student begins; the teachers are the
nodes' own models, with their own buffers. So each node's update is needed, and privacy at the server, which
adds noise to the sum alone, is refused.

Deviations: a fixed number of steps, few by default, where the paper takes up to 10,000 and stops early on
labelled examples. The authors' code weights teachers by their validation accuracy if told to, and by default
averages divergences; its published commands average logits, as here. Models predict in evaluation mode, so that
the student's running statistics stay the nodes' mean, and dropout is off. All nodes have the same model:
prototypes of several sizes are left out.

Where nodes' models hardly differ, as after small client steps, the divergence's gradient is close to rounding,
and Adam moves along it as fast as along any other. Two programs with the same rule then differ by far more than
rounding, in float32 above all. Reduction: ``distillation.steps`` = 0 is FedAvg, bit for bit.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .core.distillation import Distillation, predict
from .core.pseudo_gradient import PseudoGradientStrategy
from .core.strategy import ServerData
from .parts.privacy import NoPrivacy
from .parts.updates import Updates
from .shared.checks import require
from .shared.seeding import Purpose, torch_seed


@dataclass(kw_only=True, eq=False)
class FedDF(PseudoGradientStrategy):
    """FedAvg, then ensemble distillation; see the module's docstring for the rule.

    Parameters
    ----------
    distillation : of the nodes' models into the server's
    server_data : has the inputs
    """

    distillation: Distillation = field(default_factory=Distillation)
    server_data: ServerData | None = None

    def __post_init__(self) -> None:
        """Refuse noise that the teachers would not have."""
        super().__post_init__()
        private, kind = self.privacy, type(self.privacy)
        expected = "none or local under strategy=feddf, which learns from each node's model"
        require(kind is NoPrivacy or private.is_local, "privacy", kind.__name__, expected)

    @property
    def needs_server_data(self) -> bool:
        return self.server_data is None and self.distillation.steps > 0

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        if not self.distillation.steps:
            return super().take_step(server_round, updates)
        data, layout = self.require_server_data(), updates.layout
        seed = torch_seed(self.seed, Purpose.DISTILLATION, server_round=server_round)
        rows, batches = self.distillation.draw_batches(data.num_inputs, seed)
        logits = _mean_logits(updates, data, rows)  # the step may write over the updates
        metrics, weights = super().take_step(server_round, updates)
        student = layout.record(self.parameters, self.buffers)
        self.parameters = self.distillation.train(data, layout, student, logits, rows, batches)
        return metrics, weights


def _mean_logits(updates: Updates, data: ServerData, rows: Tensor) -> Tensor:
    """Return the mean of the nodes' logits for these inputs; one node's model is made at a time."""
    teachers = (
        updates.layout.record(updates.start - delta, buffers)
        for delta, buffers in zip(updates.deltas, updates.buffers, strict=True)
    )
    total = sum((predict(data, teacher, rows) for teacher in teachers), torch.zeros(()))
    return total / len(updates.deltas)
