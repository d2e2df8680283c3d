"""FedProto: nodes have their own models, and share prototypes of the classes.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang: *FedProto: Federated Prototype Learning across Heterogeneous Clients*,
AAAI 2022, Algorithm 1. C_k[c] is the mean representation of node k's n_kc examples of class c, where a
representation z is what the model's last linear layer is given:

    node:    min  loss(w_k) + lambda mean_i || z_i - C[y_i] ||^2 / d        from its own w_k
    server:  C[c] = sum_k n_kc C_k[c] / sum_k n_kc                          over the nodes of the round

Models are not averaged: each node's is trained from its own last one, as with ``strategy=local``
(:class:`~strategies.LocalOnly`), and the prototypes [C, d] go beside it. The paper's lambda is 1 in its code.

Deviations: all nodes' models have one architecture, and travel to the server and back, so that it can evaluate,
save and resume them; the paper's stay at their nodes, which saves the bytes. Equation 6 divides the mean by the
number of nodes that have the class once more, and the authors' code takes the plain mean over nodes; here it is
the mean over examples. The distance is that of the authors' code, a mean square over the batch and d, taken for
each example; equation 8 sums one for each class. A node's prototypes are those of the model that it has
trained, where the authors' code takes the mean over the last epoch's steps. A class that no node of a round has
keeps its prototype. Reduction: lambda = 0 is local training.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, ConfigScalar, Message, MetricRecord
from flwr.serverapp import Grid
from torch import Tensor

from .core.pseudo_gradient import PseudoGradientStrategy
from .core.replies import MAX_EXAMPLES, Records
from .grouped import LocalOnly
from .parts.layout import Layout
from .shared import protocol
from .shared.arrays import move_record, record_device, to_array_record
from .shared.checks import require


@dataclass(kw_only=True, eq=False)
class PrototypeExchange(PseudoGradientStrategy):
    """The strategy of one node's model, whose reply carries the node's prototypes."""

    extra_records: ClassVar[tuple[str, ...]] = (protocol.PROTOTYPES,)

    received: Records = field(default_factory=dict, init=False, repr=False)  # in the last round
    _shape: tuple[int, ...] = field(default=(), init=False, repr=False)  # C classes, d coordinates

    def check(self, arrays: ArrayRecord) -> Layout:
        """Refuse also a model without a matrix; the last one counts as its last linear layer's weight."""
        matrices = [tuple(array.shape) for array in arrays.values() if len(array.shape) == 2]
        if not matrices:
            raise ValueError(
                "strategy=fedproto needs a model with a linear layer, and this one has no matrix"
            )
        self._shape = matrices[-1]
        return super().check(arrays)

    def check_records(self, records: Records) -> None:
        """Refuse prototypes of other shapes, and counts that are no whole numbers from 0 on."""
        sent = records[protocol.PROTOTYPES]
        shapes = {name: tuple(values.shape) for name, values in sent.items()}
        expected = {"means": self._shape, "counts": self._shape[:1]}
        if shapes != expected:
            raise ValueError(f"sent prototypes of the shapes {shapes}, expected {expected}")
        counts = sent["counts"].cpu().double()
        if (
            bool((counts != counts.floor()).any() or (counts < 0).any())
            or float(counts.sum()) > MAX_EXAMPLES
        ):
            raise ValueError(
                f"sent prototypes of {counts.tolist()[:3]} ... examples, expected whole numbers"
            )

    def absorb_records(self, server_round: int, records: Mapping[int, Records]) -> None:
        (self.received,) = records.values()


@dataclass(kw_only=True, eq=False)
class FedProto(LocalOnly):
    """Local training with prototypes; needs this project's ClientApp.

    Parameters
    ----------
    inner : the strategy of one node's model, copied for each
    strength : lambda, 0 or above: 0 is local training
    """

    inner: PrototypeExchange = field(default_factory=PrototypeExchange)
    strength: float = 1.0

    _means: Tensor | None = field(default=None, init=False, repr=False)  # C, [C, d] in float64
    _counts: Tensor | None = field(default=None, init=False, repr=False)  # of the examples behind it, [C]

    def __post_init__(self) -> None:
        """Refuse an inner strategy whose replies carry no prototypes."""
        require(0 <= self.strength < float("inf"), "strategy.strength", self.strength, "0 or above")
        if not isinstance(self.inner, PrototypeExchange):
            raise ValueError(
                f"strategy.inner={type(self.inner).__name__}: strategy=fedproto needs PrototypeExchange, whose "
                "replies carry prototypes; leave strategy.inner out"
            )
        super().__post_init__()

    def train_config(self) -> dict[str, ConfigScalar]:
        own: dict[str, ConfigScalar] = {protocol.PROTOTYPES: True, protocol.PROTOTYPE_WEIGHT: self.strength}
        return super().train_config() | own

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send each node its own model, and the global prototypes."""
        config = ConfigRecord({**config, **self.train_config()})
        messages = list(super().configure_train(server_round, arrays, config, grid))
        if self._means is not None and self._counts is not None:
            host = to_array_record({"means": self._means.float(), "counts": self._counts.long()})
            record = move_record(host, record_device(arrays))
            for message in messages:
                message.content[protocol.PROTOTYPES] = record
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord]:
        """Take each node's own step, and average the prototypes."""
        exchanges = [one for one in self._strategies.values() if isinstance(one, PrototypeExchange)]
        for exchange in exchanges:
            exchange.received = {}
        arrays, metrics = super().aggregate_train(server_round, replies)
        self._average([one.received[protocol.PROTOTYPES] for one in exchanges if one.received])
        return arrays, metrics

    def _average(self, prototypes: list[dict[str, Tensor]]) -> None:
        """Average the nodes' prototypes by examples; a class that no node has keeps its own."""
        if not prototypes:
            return
        counts = torch.stack([one["counts"].cpu().double() for one in prototypes])
        means = torch.stack([one["means"].cpu().double() for one in prototypes])
        total = counts.sum(0)
        mean = (counts.unsqueeze(2) * means).sum(0) / total.clamp_min(1).unsqueeze(1)
        if self._means is not None and self._counts is not None:
            mean = mean.where(total.unsqueeze(1) > 0, self._means)
            total = total.where(total > 0, self._counts)
        self._means, self._counts = mean, total

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"prototypes": (self._means, self._counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._means, self._counts = state["prototypes"]
