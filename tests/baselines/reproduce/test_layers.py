"""What a model has learnt, layer by layer: the mean over its convolutions and their unfoldings."""

from pathlib import Path

import pytest
import torch
from torch import nn

from baselines.errors import UserError
from baselines.reproduce import layers
from strategies.shared import linalg


def test_a_number_is_the_mean_over_convolutions_and_unfoldings(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 12, 3), nn.Flatten(), nn.Linear(12, 2))
    for convolution in (model[0], model[1]):
        convolution.weight.data[0] *= 30  # something stands out
    monkeypatch.setattr(layers, "last_model", lambda folder: (None, model))
    for name in ("noise_share", "effective_rank", "stable_rank", "condition_number"):
        measure = getattr(linalg, name)
        both = [
            measure(linalg.unfold(convolution.weight.detach(), mode))
            for convolution in (model[0], model[1])
            for mode in ("in", "out")
        ]
        assert getattr(layers, name)(Path("run")) == pytest.approx(sum(both) / 4)
    monkeypatch.setattr(layers, "last_model", lambda folder: (None, model[3]))
    with pytest.raises(UserError, match="run has a model without a convolution"):
        layers.noise_share(Path("run"))
