"""A folder of the user's that has the name of one of our packages, and commands called by their files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.checkout import ROOT


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call Python in a folder, from which it finds this project as an installed one."""
    settings = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": ""}
    program = [sys.executable, *arguments]
    return subprocess.run(program, cwd=folder, env=settings, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["strategies", "clients"])
@pytest.mark.parametrize("is_package", [True, False])
def test_a_command_names_the_folder_that_shadows_ours(name: str, is_package: bool, tmp_path: Path) -> None:
    theirs = tmp_path / name / "__init__.py" if is_package else tmp_path / f"{name}.py"
    theirs.parent.mkdir(exist_ok=True)
    theirs.touch()
    done = call(tmp_path, "-m", "baselines.run", "rounds=1")
    assert done.returncode == 2
    where = theirs.parent if is_package else theirs
    line = f"{where} is found in place of Florilegium's own {name}: rename it, or leave its folder"
    assert done.stderr == f"error: {line}\n"
    imported = call(tmp_path, "-c", "import baselines")
    assert imported.returncode == 1
    assert imported.stderr.splitlines()[-1].startswith(f"ImportError: {where} is found in place of")


@pytest.mark.slow
def test_a_folder_without_code_shadows_nothing(tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    assert call(tmp_path, "-c", "import baselines").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "compare", "inspect", "predict"])
def test_a_command_called_by_its_file(name: str, tmp_path: Path) -> None:
    done = call(tmp_path, str(ROOT / "baselines" / f"{name}.py"))
    assert done.returncode == 2
    assert done.stderr == "error: call the commands as modules, e.g. python -m baselines.run\n"
