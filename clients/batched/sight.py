"""Sight: what the nodes of a stack see of the data that they share, each through its own transform."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clients.examples import Examples, Transform
from clients.turn import Turn


@dataclass(frozen=True)
class Sight:
    """What nodes see of one data set.

    Parameters
    ----------
    data : the first node's examples, whose tensors are everybody's
    transforms : one for each node, or a single one where all see alike
    """

    data: Examples
    transforms: tuple[Transform | None, ...]

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> "Sight":
        """Return the sight of the nodes of a round."""
        transforms = tuple(turn.node.train.transform for turn in turns)
        alike = all(transform == transforms[0] for transform in transforms)
        return cls(turns[0].node.train, transforms[:1] if alike else transforms)

    def same(self, other: "Sight") -> bool:
        """Say whether the same rows look the same to the same places."""
        return self.data.inputs is other.data.inputs and self.transforms == other.transforms

    def batch(self, rows: Tensor, device: torch.device) -> list[Tensor]:
        """Return the inputs and targets of rows [nodes, batch]: [nodes, batch, ...] each."""
        inputs, targets = self.data.raw(rows.flatten(), device)
        if len(self.transforms) == 1:
            inputs = self.data.seen(inputs)
        else:
            parts = zip(torch.split(inputs, rows.shape[1]), self.transforms, strict=False)
            inputs = torch.cat([part if see is None else see(part) for part, see in parts])
        return [values.view(*rows.shape, *values.shape[1:]) for values in (inputs, targets)]
