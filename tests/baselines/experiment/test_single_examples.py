"""A model that fails on a batch of one is found before round 1, where anybody has such a batch."""

from pathlib import Path

import pytest

from helpers.runs import launch, own_options

SQUEEZING = """
from torch import nn

class Squeezing(nn.Module):
    def __init__(self, input_shape, num_classes, only_eval=False):
        super().__init__()
        self.layer, self.only_eval = nn.Linear(64, num_classes), only_eval

    def forward(self, x):
        out = self.layer(x.flatten(1)).unsqueeze(2)
        return out.squeeze(2) if self.only_eval and self.training else out.squeeze()
"""
MODEL = (
    "squeezing: {_target_: squeezing.Squeezing, input_shape: '${dataset.shape}', "
    "num_classes: '${dataset.num_classes}', only_eval: false}"
)
WHY = "a batch of one example, on which the model fails ("
REFUSED = {
    "client.batch_size=24 num_nodes=10": "client.batch_size=24 leaves node 3 (1 of 10 nodes) ",
    "num_nodes=3 client.batch_size=1": "client.batch_size=1 leaves node 0 (3 of 3 nodes) ",
    "num_nodes=3 client.batch_size=null validation_size=1": "the validation set ends with ",
    "num_nodes=3 validation_size=1 model.only_eval=true": "the validation set ends with ",
}


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return own_options(tmp_path, monkeypatch, "squeezing", SQUEEZING, model=MODEL)


@pytest.mark.slow
@pytest.mark.parametrize(("overrides", "message"), REFUSED.items(), ids=REFUSED)
def test_it_is_refused(
    overrides: str, message: str, options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = overrides.split()
    assert launch(options, "model=squeezing", "rounds=1", *words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message + WHY in line
    assert "squeeze() without a dimension" in line
    assert not (tmp_path / "run" / "metrics.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize("overrides", ["client.batch_size=25", "client.batch_size=null"])
def test_it_runs_where_nobody_has_one(overrides: str, options: str, tmp_path: Path) -> None:
    words = ["model=squeezing", "num_nodes=3", "rounds=1", "partitioner=iid", overrides]
    assert launch(options, *words, f"hydra.run.dir={tmp_path / 'run'}") == 0
