"""Which examples a model is right about, in batches."""

import pytest
import torch
from torch import Tensor, nn

from clients import Examples
from clients.evaluation import find_correct, num_batches


class Sizes(nn.Module):
    """Passes scores on, and notes how many examples came at a time, and in which mode."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))
        self.seen: list[int] = []

    def forward(self, scores: Tensor) -> Tensor:
        assert not self.training
        self.seen.append(len(scores))
        return scores


@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(1, [1] * 7), (3, [3, 3, 1]), (7, [7]), (50, [7])], ids=str
)
def test_each_example_of_the_index_once_in_order(
    batch_size: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clients.evaluation.BATCH_SIZE", batch_size)
    draws = torch.Generator().manual_seed(3)
    scores, targets = torch.randn(20, 4, generator=draws), torch.randint(4, (20,), generator=draws)
    index = torch.tensor([5, 1, 4, 19, 0, 2, 6])
    model = Sizes()
    examples = Examples(scores, targets, index)
    actual = find_correct(model, examples, range(num_batches(examples)))
    assert actual.dtype == torch.bool
    assert actual.tolist() == [int(scores[k].argmax()) == int(targets[k]) for k in index]
    assert {True, False} == set(actual.tolist())
    assert model.seen == sizes
