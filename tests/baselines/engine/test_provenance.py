"""The commit that stands beside a number is that of the code which computed it."""

import subprocess
from pathlib import Path

import pytest

from baselines.engine import environment
from baselines.engine.environment import git_commit


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with one file of each kind, all committed."""
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    for name in ("strategies/part/a.py", "conf/config.yaml", "baselines/papers/gma/ours/table.csv"):
        write(tmp_path / name, "1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    return tmp_path


@pytest.mark.slow
def test_results_leave_the_commit_as_it_is(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert git_commit() == commit
    write(checkout / "baselines/papers/gma/ours/table.csv", "2")
    write(checkout / "outputs/run/metrics.csv", "3")
    assert git_commit() == commit


@pytest.mark.slow
@pytest.mark.parametrize("name", ["strategies/part/a.py", "clients/new.py", "conf/config.yaml"])
def test_code_or_configuration_of_ones_own_does_not(name: str, checkout: Path) -> None:
    write(checkout / name, "2")
    assert git_commit() == git(checkout, "rev-parse", "HEAD") + "-dirty"


def test_outside_git_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit() is None


@pytest.mark.slow
def test_a_repository_around_an_environment_has_not_the_codes_commit(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(checkout / ".gitignore", ".venv\n")
    write(checkout / ".venv/lib/strategies/part/a.py", "1")
    monkeypatch.setattr(environment, "ROOT", checkout / ".venv" / "lib")
    assert git_commit() is None
