"""What nodes see of shared data, one step at a time and some steps ahead."""

import pytest
import torch
from torch import Tensor

from clients import Examples
from clients.batched import stack as sight_module
from clients.batched.stack import Prefetcher, StackedView

CPU = torch.device("cpu")
INPUTS, TARGETS = torch.arange(24.0).view(12, 2), torch.arange(12)
ROWS = torch.tensor(
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]], [[1, 0], [0, 0]], [[3, 2], [0, 0]]]
)


def negative_sum(inputs: Tensor) -> Tensor:
    """Another shape than before."""
    return -inputs.sum(1, keepdim=True)


def plus_one(inputs: Tensor) -> Tensor:
    return (inputs + 1)[:, :1]


def sight(*transforms: object) -> StackedView:
    return StackedView(tuple(Examples(INPUTS, TARGETS, torch.arange(12), see) for see in transforms))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [2, 3, 5, 100])
@pytest.mark.parametrize("transforms", [(None,), (negative_sum,), (negative_sum, plus_one)])
def test_ahead_is_step_by_step(transforms: tuple[object, ...], size: int) -> None:
    """The last two steps are of one node alone."""
    one_by_one = Prefetcher(sight(*transforms), ROWS, CPU, repeats=False)
    ahead = Prefetcher(sight(*transforms), ROWS, CPU, repeats=False)
    ahead._size = size
    for step, active in enumerate((2, 2, 2, 1, 1)):
        for actual, expected in zip(ahead.batch(step, active), one_by_one.batch(step, active), strict=True):
            assert torch.equal(actual, expected)
            assert actual.shape[:2] == (active, 2)


def test_each_node_has_its_own_transform_by_hand() -> None:
    inputs, targets = Prefetcher(sight(negative_sum, plus_one), ROWS, CPU, repeats=False).batch(1, 2)
    assert inputs.tolist() == [[[-17], [-21]], [[13], [15]]]  # rows 4 and 5, 6 and 7
    assert targets.tolist() == [[4, 5], [6, 7]]


def test_as_many_steps_are_gathered_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two nodes, two rows and two numbers of four bytes: 32 bytes a step; where none fits, one."""
    ahead = Prefetcher(sight(None), ROWS, CPU, repeats=False)
    for room, steps in ((31, 1), (63, 1), (64, 2), (100, 3)):
        monkeypatch.setattr(sight_module, "PREFETCH_BYTES", room)
        assert ahead._count_fitting_steps() == steps
