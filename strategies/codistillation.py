"""Co-distillation: every node trains a model of its own, and learns what the others' models predict.

Anil, Pereyra, Passos, Ormandi, Dahl, Hinton: *Large Scale Distributed Neural Network Training through Online
Distillation*, ICLR 2018, Algorithm 1. Sodhani et al., *A Closer Look at Codistillation for Distributed
Training*, 2020, study it; FedER's thesis names it as future work. Its federated form is FedMD (Li, Wang:
*FedMD: Heterogenous Federated Learning via Model Distillation*, 2019, Algorithm 1): models are never averaged,
only predictions for inputs x that all share. In each round, of its K nodes,

    w_k <- node k's local training from w_k                              ``inner``, with one node in each group
    w_k <- w_k - Adam's step on KL( softmax( 1/(K-1) sum_{j != k} f(w_j; x) ) || softmax( f(w_k; x) ) )

``distillation.steps`` times, where the w_j are those after local training, for all k at once; f are logits.
The inputs are those of the examples that ``validation_size`` sets aside, or another data set's
(``server_inputs``); labels are not looked at.

Deviations: the server distils, since it has the inputs and the models; a node of FedMD does so itself, sends
predictions, and may have a model of another size. Anil et al. add the term to the loss of each local step,
and average probabilities; FedMD's consensus holds the node's own prediction too. A round of one node alone is
local training. Reduction: ``distillation.steps`` = 0 is ``strategy=local``, bit for bit.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from flwr.app import ArrayRecord, Message, MetricRecord

from .core.distillation import Distillation, predict
from .core.strategy import ServerData
from .grouped import LocalOnly
from .shared.checks import require
from .shared.seeding import Purpose, torch_seed


@dataclass(kw_only=True, eq=False)
class CoDistillation(LocalOnly):
    """Local training, and distillation between the nodes of a round; see the module's docstring for the rule.

    Parameters
    ----------
    distillation : of the other nodes' models into each
    server_data : has the inputs
    """

    distillation: Distillation = field(default_factory=Distillation)
    server_data: ServerData | None = None

    def __post_init__(self) -> None:
        """Refuse a mean of iterates: these are the models before distillation."""
        super().__post_init__()
        last, expected = self.inner.average_last, "1 under strategy=codistillation"
        require(last == 1, "strategy.inner.average_last", last, expected)

    @property
    def needs_server_data(self) -> bool:
        return (self.server_data is None and self.distillation.steps > 0) or super().needs_server_data

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord]:
        before = dict(self._models)
        arrays, metrics = super().aggregate_train(server_round, replies)
        trained = [name for name, model in self._models.items() if model is not before[name]]
        if self.distillation.steps and len(trained) > 1:
            self._distil(server_round, trained)
            arrays = self._mean_model()
        return arrays, metrics

    def _distil(self, server_round: int, names: list[str]) -> None:
        """Let each of these models learn from the others."""
        data, layout = self.require_server_data(), self._strategies[names[0]].layout
        assert layout is not None
        seed = torch_seed(self.inner.seed, Purpose.DISTILLATION, server_round=server_round)
        rows, batches = self.distillation.draw_batches(data.num_inputs, seed)
        logits = torch.stack([predict(data, self._models[name], rows) for name in names])
        total = logits.sum(0)
        for name, own in zip(names, logits, strict=True):
            model, others = self._models[name], (total - own) / (len(names) - 1)
            parameters = self.distillation.train(data, layout, model, others, rows, batches)
            self._models[name] = layout.record(parameters, layout.flatten_buffers(model))
