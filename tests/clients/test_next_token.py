"""Tokens that follow: the loss and the accuracy by hand."""

import math

import pytest
import torch

from clients import NextToken
from strategies.shared import protocol

# Two examples of two places, three tokens; a logit of ln 2 makes its token twice as likely as another.
LOGITS = torch.log(torch.tensor([[[2.0, 1, 1], [1, 1, 2]], [[1, 2, 1], [1, 2, 1]]])).requires_grad_()
TOKENS = torch.tensor([[0, 0], [1, 1]])
FIRST, SECOND = (math.log(2) + math.log(4)) / 2, math.log(2)  # mean over places


def test_loss_and_accuracy_by_hand() -> None:
    loss, sums = NextToken()(LOGITS, TOKENS)
    assert loss.item() == pytest.approx((FIRST + SECOND) / 2)
    assert sums[protocol.LOSS].item() == pytest.approx(FIRST + SECOND)
    assert sums[protocol.ACCURACY].item() == pytest.approx(0.5 + 1)
    assert not sums[protocol.LOSS].requires_grad


def test_rows_that_only_fill_up_do_not_count() -> None:
    loss, sums = NextToken()(LOGITS, TOKENS, torch.tensor([0.0, 1.0]))
    assert loss.item() == pytest.approx(SECOND)
    assert sums[protocol.LOSS].item() == pytest.approx(SECOND)
    assert sums[protocol.ACCURACY].item() == 1
