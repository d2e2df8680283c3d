"""Folders that the command line names: options of the user's own, beside those of ``conf``, and data."""

import json
from pathlib import Path

import pytest

from baselines.experiment import config
from helpers.runs import launch, metrics_in

HALF = """from dataclasses import dataclass
from strategies import Mask

@dataclass(frozen=True)
class Half(Mask):
    share: float = 0.5
    min_nodes = 1
    idle = False

    def mask_values(self, deltas, scratch, out):
        out.fill_(self.share)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a mask of its own, and be in it."""
    folder = tmp_path / "Ann's work"
    (folder / "options" / "mask").mkdir(parents=True)
    (folder / "ann_half.py").write_text(HALF)
    (folder / "options" / "mask" / "half.yaml").write_text("_target_: ann_half.Half\nshare: 0.5\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        ("--config-dir", "options"),
        ("hydra.searchpath=[options]",),
        ("hydra.searchpath=[options]", "hydra.job.chdir=true"),
    ],
)
def test_an_option_of_another_folder_is_one_like_the_others(
    way: tuple[str, ...], mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ("rounds=2", "num_nodes=3", "client.optimizer.lr=0.1")
    assert launch(*way, "mask=half", *small, "hydra.run.dir=own") == 0
    assert launch("step_size.eta=0.5", *small, "hydra.run.dir=same") == 0
    own, same = metrics_in(mine / "own"), metrics_in(mine / "same")
    tested, expected = (rows[rows.split == "test"].reset_index(drop=True) for rows in (own, same))
    assert len(tested) == 6
    assert tested.equals(expected)  # a mask has more rows of training

    monkeypatch.chdir(tmp_path)  # as another process would be
    written = json.loads((mine / "own" / "environment.json").read_text())["overrides"]
    assert config.load(written).mask == {"_target_": "ann_half.Half", "share": 0.5}


@pytest.mark.slow
def test_without_it_the_option_does_not_exist(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch("mask=half", "hydra.run.dir=own") == 2
    assert "mask/half does not exist" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mine", "Ann's döner"])
def test_a_data_folder_is_found_from_anywhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = (f'data_root="{name}"', "rounds=1", "num_nodes=2", "hydra.job.chdir=true", "hydra.run.dir=own")
    assert launch(*run) == 0
    written = json.loads((tmp_path / "own" / "environment.json").read_text())["overrides"]
    assert config.load(written).data_root == str(tmp_path / name)
