"""Privacy's noise on the server meets parameters that no node moves, or that have two names."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.preflight import check
from helpers.runs import played

NOISED = "weighting=uniform privacy.noise_multiplier=1 num_nodes=3"


class Half(nn.Module):
    """Of two layers one is frozen, as where a pretrained model is tuned."""

    def __init__(self, num_classes: int, tied: bool = False, **_: object) -> None:
        super().__init__()
        self.below, self.above = nn.Linear(64, 64), nn.Linear(64, 64)
        self.last = nn.Linear(64, num_classes)
        self.below.requires_grad_(tied)
        if tied:
            self.above.weight = self.below.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.above(torch.relu(self.below(x.flatten(1))))))  # type: ignore[no-any-return]


def build(privacy: str, tied: bool) -> Experiment:
    named = f"model={{_target_: {__name__}.Half, num_classes: 10, tied: {str(tied).lower()}}}"
    return Experiment(f"'++{named}' {NOISED} privacy={privacy}")


@pytest.mark.parametrize("privacy", ["central", "adaptive"])
def test_two_names_are_refused(privacy: str) -> None:
    with pytest.raises(UserError, match="a second name"):
        check(build(privacy, tied=True))


@pytest.mark.slow
@pytest.mark.parametrize("privacy", ["central", "adaptive"])
def test_noise_leaves_alone_what_is_not_trained(privacy: str, tmp_path: Path) -> None:
    played(f"{build(privacy, tied=False).overrides} rounds=1 save=last", tmp_path)
    start = build(privacy, tied=False).model().state_dict()
    end = load_file(tmp_path / "model.safetensors")
    assert {name for name in start if torch.equal(start[name], end[name])} == {"below.weight", "below.bias"}


@pytest.mark.parametrize("privacy", ["local privacy.clip=1", "central privacy.noise_multiplier=0"])
def test_where_nothing_moves_them_they_are_not(privacy: str) -> None:
    check(build(privacy, tied=False))
