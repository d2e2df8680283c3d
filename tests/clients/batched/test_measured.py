"""The node whose gradient is held against its own: the one with the fewest examples in the step."""

import copy
import re

import pytest
import torch
from torch import Tensor, nn

from clients import Classification
from clients.batched.eligibility import (
    GRADIENT_MISMATCH,
    NotBatchable,
    StackedGradient,
    compute_checked_gradients,
)
from helpers.noting import noting

NODES, ROWS, FEATURES, CLASSES = 3, 4, 2, 2


class Counting(Classification):
    """Takes rows that only fill a batch up for examples."""

    def __call__(
        self, outputs: Tensor, targets: Tensor, present: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return super().__call__(outputs, targets, None if present is None else torch.ones_like(present))


def step(task: Classification, short: int | None) -> bool:
    """Measure a step in which one node lacks two examples; return whether it could tell."""
    torch.manual_seed(0)
    model = nn.Linear(FEATURES, CLASSES).double()
    values = [torch.randn(NODES, *p.shape).double() for p in model.parameters()]
    targets = torch.ones(NODES, ROWS, dtype=torch.int64)
    targets[0] = 0  # the least of the targets are another node's than the least of the examples
    batch = [torch.randn(NODES, ROWS, FEATURES).double(), targets]
    if short is not None:
        batch.append(torch.ones(NODES, ROWS).double())
        batch[2][short, 2:] = 0
    batched = StackedGradient(copy.deepcopy(model), task)
    with torch.no_grad():
        (gradients, sums), losses = compute_checked_gradients(batched, model, values, batch)
    assert not batched._steps  # nothing is recorded, whether training may be or not
    assert [len(g) for g in gradients] == [NODES, NODES]
    assert sums["loss"].shape == (NODES,)
    return losses


@pytest.mark.parametrize("short", [None, 0, 1, 2])
def test_a_right_gradient_passes(short: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.fast.gradient.EAGER_STEPS_BEFORE_TRACE", 0)
    assert step(Classification(), short)


@pytest.mark.parametrize("short", [1, 2])
def test_rows_that_fill_a_batch_up_must_not_count(short: int) -> None:
    with pytest.raises(NotBatchable, match=re.escape(GRADIENT_MISMATCH)) as error:
        step(Counting(), short)
    assert "the task leave present out" in str(error.value)


def test_the_two_are_compared_in_float32_with_all_of_its_bits() -> None:
    """In TF32, which convolutions are in on a GPU, right gradients can differ by more than is allowed."""
    seen: list[bool] = []
    assert step(noting(seen), None)
    assert seen == [False, False]
    assert torch.backends.cudnn.allow_tf32
