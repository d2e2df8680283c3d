"""Options of one's own with the project's names: the project's would be read, so they are refused."""

from pathlib import Path

import pytest

from baselines.errors import UserError
from baselines.experiment.config import load
from helpers.runs import launch

SMALL = ("model=softmax", "num_nodes=2", "rounds=1")
MINE = "defaults: [base]\n_target_: strategies.FedAvg\n"


def write(folder: Path, name: str, text: str = MINE) -> Path:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "chosen"),
    [
        ("strategy/fedexp", MINE, "strategy=fedexp"),
        ("strategy/fedavg", MINE, "seed=1"),  # the default
        ("corrections/moon", "moon: null\n", "corrections=[proximal,moon]"),
        ("client/local", "_target_: clients.LocalTraining\n", "seed=1"),
    ],
)
@pytest.mark.parametrize("by_searchpath", [False, True])
def test_is_told_to_rename_it(
    name: str,
    text: str,
    chosen: str,
    by_searchpath: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = write(tmp_path / "own", name, text)
    added = [f"hydra.searchpath=[file://{tmp_path}/own]"] if by_searchpath else ["--config-dir"]
    added += [] if by_searchpath else [str(tmp_path / "own")]
    assert launch(*added, chosen, *SMALL, f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert capsys.readouterr().err == (
        f"error: {own} would be ignored: the project has a {name}.yaml of its own; rename yours\n"
    )


@pytest.mark.slow
def test_so_is_what_an_option_is_made_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "strategy/mine", "defaults: [fedexp]\n")
    write(tmp_path, "strategy/fedexp")
    folder = f"hydra.run.dir={tmp_path / 'run'}"
    assert launch("--config-dir", str(tmp_path), "strategy=mine", *SMALL, folder) == 2
    assert "strategy/fedexp.yaml would be ignored" in capsys.readouterr().err


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:provider=hydra.searchpath")
@pytest.mark.parametrize("path", ["pkg://no_such.conf", "pkg://strategies", "file://{}"])
def test_what_is_not_chosen_may_have_any_name(path: str, tmp_path: Path) -> None:
    write(tmp_path, "strategy/fedexp")
    write(tmp_path, "strategy/mine", "defaults: [base]\n_target_: strategies.FedAvg\n")
    chosen = "mine" if "file" in path else "fedavg"
    assert load(f"strategy={chosen} hydra.searchpath=[{path.format(tmp_path)}]").strategy._target_


def test_one_in_a_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = write(tmp_path / "shadowlab" / "conf", "strategy/fedexp")
    for folder in ("shadowlab", "shadowlab/conf"):
        (tmp_path / folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=f"{own} would be ignored"):
        load("strategy=fedexp hydra.searchpath=[pkg://shadowlab.conf]")
