"""Majority vote: the nodes' signs, and nothing else of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .aggregation import Median, Spare
from .blocks import blocks
from .mask import Factors, Mask
from .updates import Updates


@dataclass(frozen=True)
class MajorityVote(Median):
    """D = sign(sum_k sign(Delta_k)) by coordinate; 0 where the votes are equal.

    Bernstein, Wang, Azizzadenesheli, Anandkumar: *signSGD: Compressed Optimisation for Non-Convex
    Problems*, ICML 2018, Algorithm 3. Every coordinate moves by eta, however small or large the updates
    are, so that just under half of the nodes can send anything at all. Buffers are no directions: theirs is
    the median. A single node gives the sign of its update.
    """

    def with_factors(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: Spare = None
    ) -> tuple[Tensor, Factors | None]:
        """Return the vote; the mask reads all updates."""
        votes, factors = mask.with_mean(updates, weights, spare)
        for block in blocks(updates.deltas):
            torch.sum(updates.deltas[:, block].sign(), 0, out=votes[block]).sign_()
        return votes, factors
