"""FedProto on the node: stay near the nodes' mean representation of each class, and report the node's own.

The server's half, and the paper: :mod:`strategies.fedproto`. z is what the model's last linear layer is
given, [n, d]; the message brings the global prototypes.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn
from torch.nn import Parameter

from clients.correction import Correction, RoundStart
from clients.evaluation import iterate_outputs, num_batches
from clients.examples import Inputs
from clients.tasks import Classification, Task
from strategies.shared import protocol
from strategies.shared.arrays import to_array_record, to_float64, values_of

from .moon import Representation, find_last_linear

OPTION = "strategy=fedproto"


class PrototypeDistance(Correction):
    """Adds lambda times the mean squared distance of representations to their classes' global prototypes.

    The mean is over a batch's examples and the d coordinates; an example whose class has no prototype yet adds
    nothing to it. At the end of the round the reply gets the node's own prototypes: ``means`` [C, d], of the
    representations of its training examples by class, in evaluation mode, and ``counts`` [C], of how many.
    """

    config_key: ClassVar[str] = protocol.PROTOTYPES
    reads: ClassVar[tuple[str, ...]] = (protocol.PROTOTYPE_WEIGHT,)

    def __init__(self, start: RoundStart) -> None:
        self.check_model(start.model, start.task)
        self.start, self.strength = start, float(start.config[protocol.PROTOTYPE_WEIGHT])  # type: ignore[arg-type]
        self.means = self.is_known = torch.empty(0)
        sent = start.content.get(protocol.PROTOTYPES)
        if isinstance(sent, ArrayRecord):
            like = find_last_linear(start.model, OPTION).weight
            self.means = values_of(sent["means"]).to(like)
            self.is_known = (values_of(sent["counts"]) > 0).to(like)
        if self.has_loss_term:
            self.own = Representation(start.model, OPTION)

    @staticmethod
    def check_model(model: nn.Module, task: Task) -> None:
        weight = find_last_linear(model, OPTION).weight
        matrices = [tensor for tensor in model.state_dict().values() if tensor.ndim == 2]
        if matrices[-1].data_ptr() != weight.data_ptr():
            raise ValueError(
                f"{OPTION} needs a model whose last matrix is the weight of its last linear layer: reorder its layers"
            )
        if not isinstance(task, Classification):
            raise ValueError(
                f"{OPTION} needs a data set with labels, one for each example, and the task of this one is "
                f"{type(task).__name__}: choose another strategy"
            )

    @property
    def has_loss_term(self) -> bool:
        """Whether it adds to the loss: not in the first round."""
        return self.strength > 0 and len(self.means) > 0

    def loss_term(self, model: nn.Module, inputs: Inputs, outputs: Tensor, targets: Tensor) -> Tensor:
        gaps = (self.own.latest - self.means[targets]) * self.is_known[targets].unsqueeze(1)
        return self.strength * gaps.square().mean()

    @torch.no_grad()
    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        """Return the node's prototypes."""
        start, weight = self.start, find_last_linear(self.start.model, OPTION).weight
        own = Representation(start.model, OPTION)
        sums = torch.zeros(weight.shape, dtype=torch.float64)
        counts = torch.zeros(len(weight), dtype=torch.int64)
        for _, targets in iterate_outputs(start.model, start.examples, range(num_batches(start.examples))):
            of_class = nn.functional.one_hot(targets, len(weight))
            sums += to_float64(of_class.T.to(weight) @ own.latest.to(weight)).cpu()
            counts += of_class.sum(0).cpu()
        means = (sums / counts.clamp_min(1).unsqueeze(1)).to(weight.dtype)
        return {protocol.PROTOTYPES: to_array_record({"means": means, "counts": counts})}
