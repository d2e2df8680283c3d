"""The plan of a round of several nodes."""

import torch
from torch import Tensor

from clients.plan import Plan

Listed = tuple[int, list[list[int]] | None, list[list[bool]] | None]


def steps(rows: list[list[list[int]]], lengths: list[list[int]]) -> list[Listed]:
    """Return (nodes, rows, present) of each step."""

    def listed(values: Tensor | None) -> list[list[int]] | None:
        return None if values is None else values.tolist()

    plan = Plan(torch.tensor(rows), torch.tensor(lengths))
    return [(step.nodes, listed(step.rows), listed(step.present)) for step in plan]


def test_the_rows_of_the_step_before_are_not_named_again() -> None:
    rows = [[[5, 6], [7, 8]], [[5, 6], [7, 8]], [[5, 6], [0, 0]]]
    first, second, third = steps(rows, lengths=[[2, 2], [2, 2], [2, 0]])
    assert first == (2, [[5, 6], [7, 8]], None)
    assert second == (2, None, None)
    assert third == (1, [[5, 6]], None)


def test_row_0_that_fills_up_is_not_taken_for_an_example() -> None:
    whole, short, again = steps([[[5, 0]]] * 3, lengths=[[2], [1], [1]])
    assert whole == (1, [[5, 0]], None)
    assert short == (1, [[5, 0]], [[True, False]])
    assert again == (1, None, [[True, False]])
