"""Iterates: the last models of a strategy, whose mean is evaluated in place of the last one."""

import torch
from flwr.app import ArrayRecord
from torch import Tensor

from strategies.parts.layout import Layout

Iterate = tuple[Tensor, Tensor]  # parameters [P], buffers [B]


class Iterates:
    """The last ``most`` iterates, fewer while fewer exist; none where ``most`` is 1."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: list[Iterate] = []

    def add(self, parameters: Tensor, buffers: Tensor) -> None:
        """Keep one more."""
        if self.most > 1:
            self.kept = [*self.kept, (parameters, buffers)][-self.most :]

    def models(self, last: ArrayRecord, layout: Layout | None) -> dict[str, ArrayRecord]:
        """Return the model to evaluate, by name: the last iterate, or the mean of those kept."""
        if self.most == 1:
            return {"global": last}
        if not self.kept or layout is None:
            return {"average": last}  # before the first round there is one iterate
        parameters, buffers = zip(*self.kept, strict=True)
        vectors = [
            vector.to(parameters[-1].device) for vector in parameters
        ]  # a checkpoint's are elsewhere
        mean = layout.record(torch.stack(vectors).mean(0), torch.stack(buffers).mean(0))
        return {"average": mean}
