"""Sight: what the nodes of a stack see of the data that they share, each through its own transform."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clients.examples import Examples
from clients.turn import Turn

AHEAD = 256 * 2**20  # bytes of inputs that are gathered at once on an accelerator


@dataclass(frozen=True)
class Sight:
    """What nodes see of one data set.

    Parameters
    ----------
    nodes : the examples of each, whose tensors are the same; of the first alone where all see alike
    """

    nodes: tuple[Examples, ...]

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> "Sight":
        """Return the sight of the nodes of a round."""
        nodes = tuple(turn.node.train for turn in turns)
        alike = all(node.transform == nodes[0].transform for node in nodes)
        return cls(nodes[:1] if alike else nodes)

    @property
    def data(self) -> Examples:
        """One node's examples, for what is the same of all."""
        return self.nodes[0]

    def same(self, other: "Sight") -> bool:
        """Say whether the same rows look the same to the same places."""
        transforms, others = ([node.transform for node in sight.nodes] for sight in (self, other))
        return self.data.inputs is other.data.inputs and transforms == others

    def batches(self, rows: Tensor, device: torch.device) -> list[Tensor]:
        """Return inputs and targets of rows [steps, nodes, batch], with these axes first."""
        inputs, targets = self.data.raw(rows.flatten(), device)
        if len(self.nodes) == 1:
            inputs = self.data.seen(inputs)
        else:
            by_node = inputs.view(*rows.shape, *inputs.shape[1:]).unbind(1)
            pairs = zip(self.nodes, by_node, strict=False)  # the last nodes may have finished
            parts = [
                torch.unflatten(node.seen(part.flatten(0, 1)), 0, part.shape[:2]) for node, part in pairs
            ]
            inputs = torch.stack(parts, 1).flatten(0, 2)
        return [values.view(*rows.shape, *values.shape[1:]) for values in (inputs, targets)]


class Ahead:
    """The batches of a round, on an accelerator some steps ahead: each operation is a launch there.

    On the CPU one by one: what was just gathered lies in its cache.

    Parameters
    ----------
    sight : what the nodes see
    rows : of the data set [steps, nodes, batch]
    device : where the batches go
    repeats : whether steps take the same examples, which are gathered once then
    """

    def __init__(self, sight: Sight, rows: Tensor, device: torch.device, *, repeats: bool) -> None:
        self.sight, self.rows, self.device = sight, rows, device
        self._first, self._gathered = 0, list[Tensor]()
        self._size = 1 if repeats or device.type == "cpu" else self._fitting()

    def _fitting(self) -> int:
        inputs = self.sight.data.inputs
        a_step = 4 * self.rows[0].numel() * math.prod(inputs.shape[1:])  # in float32
        return max(1, AHEAD // max(1, a_step))

    def batch(self, step: int, active: int) -> list[Tensor]:
        """Return the inputs and targets of a step's first ``active`` nodes, [active, batch, ...] each."""
        if self._size == 1:
            return [values[0] for values in self.sight.batches(self.rows[step, None, :active], self.device)]
        if not self._gathered or not self._first <= step < self._first + self._size:
            self._first = step
            self._gathered = self.sight.batches(self.rows[step : step + self._size], self.device)
        return [values[step - self._first, :active] for values in self._gathered]
