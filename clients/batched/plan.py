"""Plan: which examples each step of many nodes takes, laid out as tensors.

Nodes have different numbers of steps, and steps different numbers of examples; the gaps are filled up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from clients.turn import Turn


@dataclass(frozen=True)
class Step:
    """One step of the nodes that have not finished, which are the first ones.

    Parameters
    ----------
    rows : of the data set [nodes, batch], filled up with row 0
    present : which of these rows count [nodes, batch]; None for all
    again : whether it takes the examples of the step before it; None for the first one, where nobody knows
    number : of the step, from 0
    """

    rows: Tensor
    present: Tensor | None
    again: bool | None = None
    number: int = 0

    def same(self, other: "Step") -> bool:
        """Say whether both take the same examples; on an accelerator this waits for it."""
        if not torch.equal(self.rows, other.rows):
            return False
        if self.present is None or other.present is None:
            return self.present is other.present
        return torch.equal(self.present, other.present)


@dataclass(frozen=True)
class Plan:
    """The steps of one round.

    Parameters
    ----------
    rows : of the data set [steps, nodes, batch], filled up with row 0, in host memory until it is placed
    lengths : how many of them count [steps, nodes]; a node that has finished takes none
    """

    rows: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> "Plan":
        """Plan a round of nodes, those with the most steps first."""
        chosen, counts = [], []
        for turn in turns:
            training, index, size = turn.training, turn.node.train.index, len(turn.node.train)
            if training.whole(size):
                chosen.append(index.repeat(training.steps(size)))
                counts.append(torch.full((training.steps(size),), size))
            else:
                positions = list(training.positions(size, torch.Generator().manual_seed(turn.seed)))
                chosen.append(index[torch.cat(positions)])
                counts.append(torch.tensor([len(each) for each in positions]))
        lengths = pad_sequence(counts)
        present = torch.arange(int(lengths.max())) < lengths.T[..., None]  # [nodes, steps, batch]
        rows = chosen[0].new_zeros(present.shape)
        rows[present] = torch.cat(chosen)
        return cls(rows.transpose(0, 1), lengths)

    def placed(self, device: torch.device) -> "Plan":
        """Return the plan with its rows on a device, where they go at once."""
        return replace(self, rows=self.rows.to(device))

    def steps(self) -> Iterator[Step]:
        """Yield each step, its tensors where the plan's rows are."""
        lengths, batch = self.lengths, self.rows.shape[2]
        present = torch.arange(batch) < lengths[..., None]  # [steps, nodes, batch]
        nodes = (lengths > 0).sum(1).tolist()
        padded = ((lengths > 0) & (lengths < batch)).any(1).tolist()
        again, present = [None, *self.repeats], present.to(self.rows.device)
        for k, (active, short) in enumerate(zip(nodes, padded, strict=True)):
            yield Step(self.rows[k, :active], present[k, :active] if short else None, again[k], k)

    @cached_property
    def repeats(self) -> list[bool]:
        """Of each step but the first whether it takes the examples of the one before [steps - 1]."""
        rows = (self.rows[1:] == self.rows[:-1]).flatten(1).all(1).cpu()
        found: list[bool] = (rows & (self.lengths[1:] == self.lengths[:-1]).all(1)).tolist()
        return found
