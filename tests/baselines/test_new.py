"""python -m baselines.new: what it writes passes its own test, and is an option as any other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from baselines import new
from baselines.experiment.overrides import ROOT

METHODS = [("FedMine", "strategy", "strategy=fedmine"), ("Pull", "correction", "corrections=pull")]


def done(folder: Path, *words: str) -> str:
    """Run a command in a folder that Python finds; return what it prints."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    run = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "option"), METHODS, ids=[kind for _, kind, _ in METHODS])
def test_what_it_writes_passes_its_test_and_runs(name: str, kind: str, option: str, tmp_path: Path) -> None:
    new.create(name, kind, tmp_path / "mylab")
    assert "2 passed" in done(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "mylab")
    setting = f"--config-dir mylab/conf {option} rounds=1 num_nodes=3".split()
    assert "round 1/1" in done(tmp_path, "-m", "baselines.run", *setting)
    own = f"--config={ROOT}/pyproject.toml"  # beside it our packages are others': their order differs
    done(tmp_path, "-m", "ruff", "check", own, "--ignore=I001,D103", "mylab")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("strategy", "self.parameters, self.alpha)", "self.parameters, 0.4)"),
        ("correction", "alpha=self.mu)", "alpha=2 * self.mu)"),
    ],
)
def test_its_test_fails_where_the_method_is_wrong(
    kind: str, before: str, after: str, tmp_path: Path
) -> None:
    code, *_ = new.create("FedMine", kind, tmp_path / "mylab")
    text = code.read_text()
    assert before in text
    code.write_text(text.replace(before, after))
    with pytest.raises(AssertionError, match="failed"):
        done(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "mylab")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["fedmine"], "no name for a class"),
        (["Fed-Mine"], "no name for a class"),
        (["FedMine", "--folder", "my-lab"], "--folder my-lab"),
        (["FedMine", "--folder", "strategies"], "a package of this project's"),
        (["FedAvg"], "something of this project's"),
        (["Correction", "--kind", "correction"], "something of this project's"),
    ],
)
def test_a_name_that_python_cannot_import_is_one_line(
    words: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert new.main(words) == 2
    assert line in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_nothing_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert new.main(["FedMine"]) == 0
    mine = Path("mylab/fedmine.py")
    mine.write_text("# mine\n")
    assert new.main(["FedMine"]) == 2
    assert "fedmine.py is there already" in capsys.readouterr().err
    assert mine.read_text() == "# mine\n"
