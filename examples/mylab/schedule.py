"""A learning-rate schedule of the client."""

import math
from dataclasses import dataclass

from clients import Schedule


@dataclass(frozen=True)
class Cosine(Schedule):
    """(1 + cos(pi (t - 1) / rounds)) / 2: from 1 to nearly 0."""

    rounds: int

    def __call__(self, server_round: int) -> float:
        return (1 + math.cos(math.pi * (server_round - 1) / self.rounds)) / 2
