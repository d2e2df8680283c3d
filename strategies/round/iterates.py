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

    def mean(self, layout: Layout) -> ArrayRecord:
        """Return their mean as a model."""
        parameters, buffers = zip(*self.kept, strict=True)
        return layout.record(torch.stack(parameters).mean(0), torch.stack(buffers).mean(0))
