"""The plan of a round of several nodes."""

import torch

from clients.batched.stack import StepPlan


def test_nodes_that_have_finished_and_rows_that_fill_up() -> None:
    rows = torch.tensor([[[5, 6], [7, 8]], [[9, 0], [3, 4]], [[2, 1], [0, 0]]])
    whole, short, alone = StepPlan(rows, lengths=torch.tensor([[2, 2], [1, 2], [2, 0]])).steps()
    assert whole.rows.tolist() == [[5, 6], [7, 8]]
    assert whole.present is None
    assert short.rows.tolist() == [[9, 0], [3, 4]]
    assert short.present is not None
    assert short.present.tolist() == [[True, False], [True, True]]
    assert alone.rows.tolist() == [[2, 1]]
    assert alone.present is None


def test_steps_are_the_same_when_the_same_examples_count() -> None:
    rows = torch.tensor([[[5, 0]], [[5, 0]], [[5, 0]], [[5, 0]], [[6, 0]]])
    whole, again, short, short_again, other = StepPlan(
        rows, torch.tensor([[2], [2], [1], [1], [2]])
    ).steps()
    assert whole.has_same_rows(again)
    assert short.has_same_rows(short_again)
    assert not whole.has_same_rows(short)
    assert not short.has_same_rows(whole)
    assert not whole.has_same_rows(other)
