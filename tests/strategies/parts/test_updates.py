"""The mean of one round's updates, under weights that differ from layer to layer."""

import pytest
import torch

from helpers.updates import updates


def test_each_layer_has_its_own_weights() -> None:
    given = updates((1, 2, 3), (5, 6, 7))
    weights = torch.tensor([[0.25, 0.0, 1.0], [0.75, 1.0, 0.0]], dtype=torch.float64)  # a, the buffer, b
    assert given.mean(weights).tolist() == [0.25 + 0.75 * 5, 0.5 + 0.75 * 6, 3]
    assert given.mean_buffers(weights).tolist() == [20]


@pytest.mark.parametrize("weights", [torch.ones(1), torch.ones(1, 3)], ids=["by node", "by layer"])
def test_a_single_node_is_the_mean(weights: torch.Tensor) -> None:
    given = updates((1, 2, 3))
    assert given.mean(weights.double()).tolist() == [1, 2, 3]
    assert given.mean_buffers(weights.double()).tolist() == [10]


def test_pieces_carry_the_weights_of_their_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strategies.parts.layout.CPU_BLOCK_COLUMNS", 1)
    weights = torch.tensor([[0.25, 0.0, 1.0], [0.75, 1.0, 0.0]], dtype=torch.float64)
    actual = [
        (b.start, b.stop, a.tolist()) for b, a in updates((1, 2, 3), (5, 6, 7)).iterate_blocks(weights)
    ]
    assert actual == [(0, 1, [0.25, 0.75]), (1, 2, [0.25, 0.75]), (2, 3, [1, 0])]
