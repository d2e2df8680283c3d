"""Edits of a stack: what the corrections of many nodes do, as operations on all their gradients at once."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from clients.correction import Edit, Tensors, edits_of
from clients.turn import Turn


def stacked(turns: Sequence[Turn]) -> list[Edit] | None:
    """Return the nodes' edits as edits of a stack.

    None where a correction is no edit, or nodes correct differently: then they do so one after another.
    """
    each = [edits_of(turn.corrections) for turn in turns]
    known = [edits for edits in each if edits is not None]
    if len(known) < len(turns) or len({tuple(edit.kind for edit in edits) for edits in known}) > 1:
        return None
    return [_joined(slot) for slot in zip(*known, strict=True)]


def _joined(edits: Sequence[Edit]) -> Edit:
    """Return the same edit of several nodes as one of their stack."""
    lists = zip(*(edit.fixed for edit in edits), strict=True)
    return replace(
        edits[0], fixed=[[torch.stack(ts) for ts in zip(*of_nodes, strict=True)] for of_nodes in lists]
    )


def clipped(gradients: Tensors, limit: float) -> Tensors:
    """Return each node's gradients, clipped as ``nn.utils.clip_grad_norm_`` does for one model."""
    squares = [g.flatten(1).square().sum(1) for g in gradients]
    factors = limit / (torch.stack(squares).sum(0).sqrt() + 1e-6)
    factors.clamp_(max=1)
    return [g * factors.view(-1, *[1] * (g.ndim - 1)) for g in gradients]
