"""The extrapolated step where weights differ from layer to layer."""

import pytest
import torch

from helpers.updates import updates
from strategies import Extrapolated


def test_each_layers_norms_count_with_its_own_weights() -> None:
    """Squared norms 5 and 61 in layer a, 9 and 49 in b; D = (4, 5, 3), whose squared norm is 50."""
    given = updates((1, 2, 3), (5, 6, 7))
    weights = torch.tensor([[0.25, 0.0, 1.0], [0.75, 1.0, 0.0]], dtype=torch.float64)  # a, the buffer, b
    eta = Extrapolated(0.5, clamp=False)(1, given, weights, given.mean(weights))
    assert eta == pytest.approx((0.25 * 5 + 0.75 * 61 + 9) / (2 * 50.5), rel=1e-12)
