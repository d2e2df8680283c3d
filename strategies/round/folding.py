"""Folding: nodes' models become their weighted mean before they travel to the server.

    mean_S = sum_{k in S} c_k w_k / sum_{k in S} c_k,      alpha_k = c_k / sum c

The mean of such means, each with the weight of its nodes, is the round's mean, to rounding: the sum is
taken in another order. What a strategy makes of the mean alone needs no more.
"""

from dataclasses import replace

import torch
from flwr.app import ArrayRecord, Message

from strategies.parts.layout import Layout
from strategies.parts.weighting import Uniform, Weighting
from strategies.shared import protocol

from .buffers import Buffers
from .evaluation import SuiteStrategy
from .freezing import Freezing
from .replies import arrays_of, num_examples_of
from .stacking import Stack

PARTS = ("weighting", "aggregation", "mask", "step_size", "privacy", "compression")


def folding_of(strategy: SuiteStrategy, arrays: ArrayRecord) -> "Folding":
    """Return what folds the models of nodes that were sent ``arrays``.

    Raises
    ------
    ValueError : where the strategy needs each node's update
    """
    for name in PARTS:
        part = getattr(strategy, name, strategy)
        if not vars(type(part)).get("of_mean", False):  # which a class says of itself alone
            raise ValueError(f"{name if part is not strategy else 'strategy'}={type(part).__name__}")
    owner = next(kind for kind in type(strategy).__mro__ if "_step" in vars(kind))
    if not vars(owner).get("of_mean", False):
        raise ValueError(f"strategy={strategy.name}, with a step of its own,")
    weighting = type(strategy.weighting)  # type: ignore[attr-defined]
    if getattr(strategy, "averages_uniformly", False) and weighting is not Uniform:
        raise ValueError(f"strategy={strategy.name} with weighting={weighting.__name__}")
    if strategy.weighting.examples_key != protocol.NUM_EXAMPLES:  # type: ignore[attr-defined]
        raise ValueError("weighting.key")
    if getattr(strategy, "max_norm", None) is not None:
        raise ValueError("participation.max_norm")
    if extra := getattr(strategy, "extra_record", None):
        raise ValueError(f"strategy={strategy.name}, whose replies carry {extra!r},")
    assert isinstance(strategy, Freezing)
    names: tuple[str, ...] = strategy.buffer_names  # type: ignore[attr-defined]
    layout = replace(Layout.of(arrays, names, strategy.frozen_names), frozen={}, names=())  # as replies are
    return Folding(layout, arrays, strategy.weighting, strategy.evidence())  # type: ignore[attr-defined]


class Folding:
    """The weighted mean of the models that were added, in float64.

    Parameters
    ----------
    layout : of the model
    arrays : what the nodes started from
    weighting : how much each node counts
    evidence : as in :class:`~strategies.round.stacking.Stack`
    """

    def __init__(
        self, layout: Layout, arrays: ArrayRecord, weighting: Weighting, evidence: dict[str, str]
    ) -> None:
        self.layout, self.weighting, self.evidence = layout, weighting, evidence
        self._start = layout.flatten_parameters(arrays)
        self._scratch = Buffers()
        self._total = 0.0
        self._deltas = torch.zeros(layout.num_parameters, dtype=torch.float64)
        self._buffers = torch.zeros(layout.num_buffers, dtype=torch.float64)

    def take(self, reply: Message) -> bool:
        """Add a node's model, and take it out of the reply; False where the server would leave it out."""
        stack = Stack(self.layout, self._start, self._scratch, 1, evidence=self.evidence)
        stack.read(0, reply)
        updates = stack.collected().updates
        if not updates.partition_ids:
            return False
        counts = self.weighting.counts(num_examples_of(reply))
        self._total += counts
        self._deltas.add_(updates.deltas[0], alpha=counts)
        self._buffers.add_(updates.buffers[0], alpha=counts)
        model = arrays_of(reply)
        for name, record in list(reply.content.items()):
            if record is model:
                del reply.content[name]
        return True

    def mean(self) -> ArrayRecord | None:
        """Return the mean of what was added; None where nothing was."""
        if not self._total:
            return None
        parameters = self._start - self._deltas.div_(self._total).to(self._start)
        return self.layout.record(parameters, self._buffers.div_(self._total))
