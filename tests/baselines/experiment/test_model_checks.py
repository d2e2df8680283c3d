"""What a model or a task of one's own gets that cannot work: one line before the first round."""

from pathlib import Path

import pytest

from helpers.checkout import ROOT
from helpers.runs import launch, own_options

MODELS = """
from torch import nn


class Tuple(nn.Linear):
    def __init__(self, out: int = 10) -> None:
        super().__init__(64, out)

    def forward(self, x):
        return super().forward(x.flatten(1)), x


class Key(Tuple):
    def forward(self, x):
        return {}["abc"]


class Silent(Tuple):
    def forward(self, x):
        raise NotImplementedError


class Flat(Tuple):
    def forward(self, x):
        return super().forward(x)[0].sum(1)


class Frozen(Tuple):
    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)

    def forward(self, x):
        return super().forward(x)[0]
"""
TAKES = "the model does not take the data set's inputs of shape (1, 8, 8) and dtype torch.float32"
METADATA_KEY = {
    "Tuple": "the model returns a tuple: expected a tensor [examples, classes]",
    "Flat": "the model returns a tensor [2]: expected [examples, classes]",
    "Key": f"{TAKES} (KeyError: 'abc')",
    "Silent": f"{TAKES} (NotImplementedError: )",
    "Frozen": "the model has no parameter to train",
}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "message"), METADATA_KEY.items(), ids=METADATA_KEY)
def test_a_model_that_cannot_work(
    model: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = own_options(tmp_path, monkeypatch, "ailing", MODELS, model=f"ailing: _target_: ailing.{model}")
    assert launch(own, "model=ailing", "rounds=1", "num_nodes=2", f"hydra.run.dir={tmp_path / 'run'}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "status", "message"),
    [
        ("model.num_classes=2", 2, "train_targets are 0 to 2, torch.int64, and the model has 2 classes"),
        ("evaluation.per_class=true", 0, ""),
    ],
)
def test_a_loss_of_ones_own_over_labels_has_what_labels_have(
    setting: str,
    status: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    own = ("--config-dir", str(ROOT / "examples" / "mylab" / "conf"), "dataset=wine_focal", "model=network")
    assert launch(*own, setting, "rounds=1", "num_nodes=2", f"hydra.run.dir={tmp_path}") == status
    assert message in capsys.readouterr().err
    assert (tmp_path / "per_class.csv").exists() == (status == 0)
