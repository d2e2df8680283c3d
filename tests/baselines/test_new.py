"""python -m baselines.new: what it writes passes its own test, and is an option as any other."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from baselines import new
from baselines.experiment.overrides import ROOT

SPOILED = {  # by kind: a line of the method, and one that is another method's
    "strategy": ("self.parameters, self.alpha)", "self.parameters, 0.4)"),
    "correction": ("alpha=self.mu)", "alpha=2 * self.mu)"),
    "strategy-with-correction": ("self.server_vector = momentum", "self.server_vector = 2 * momentum"),
    "personal": ("to(p), self.share)", "to(p), 0.4 * self.share)"),
}


def run_tests(code: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Call the tests beside a method's code in this process, as pytest does; return their names."""
    package = code.parent
    monkeypatch.syspath_prepend(package.parent)
    tests = import_module(f"{package.name}.test_{code.stem}")
    named = [name for name in vars(tests) if name.startswith("test_")]
    for name in named:
        (folder / name).mkdir()
        getattr(tests, name)(folder / name)
    return named


@pytest.mark.slow
@pytest.mark.parametrize("kind", new.KINDS)
def test_what_it_writes_passes_its_test(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = f"lab_{kind.replace('-', '_')}"  # a name of its own: modules are imported once
    code, *_ = new.create("FedMine", kind, tmp_path / package)
    assert len(run_tests(code, tmp_path, monkeypatch)) == 2
    own = f"--config={ROOT}/pyproject.toml"  # beside it our packages are others': their order differs
    ruff = [sys.executable, "-m", "ruff", "check", own, "--ignore=I001,D103", str(code.parent)]
    subprocess.run(ruff, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", new.KINDS)
def test_its_test_fails_where_the_method_is_wrong(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = SPOILED[kind]
    code, *_ = new.create("FedMine", kind, tmp_path / f"spoiled_{kind.replace('-', '_')}")
    text = code.read_text()
    assert before in text
    code.write_text(text.replace(before, after))
    with pytest.raises(AssertionError):
        run_tests(code, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["fedmine"], "not a class name"),
        (["Fed-Mine"], "not a class name"),
        (["FedMine", "--folder", "my-lab"], "--folder my-lab"),
        (["FedMine", "--folder", "strategies"], "strategies is a package of this project"),
        (["FedAvg"], "taken by this project"),
        (["Correction", "--kind", "correction"], "taken by this project"),
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
    assert "fedmine.py exists already" in capsys.readouterr().err
    assert mine.read_text() == "# mine\n"
