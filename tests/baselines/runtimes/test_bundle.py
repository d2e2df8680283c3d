"""What ``flwr build`` ships: the code and the configuration, all of it and nothing else."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from baselines.experiment.identity import source_hash
from baselines.runtimes.staging import copy_app
from helpers.checkout import ROOT

pytestmark = pytest.mark.runtime

KINDS = {"strategies": ".py", "clients": ".py", "baselines": ".py", "conf": ".yaml"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the unpacked bundle lies in."""
    folder = tmp_path_factory.mktemp("bundle")
    app = folder / "app"  # Flower builds from folders of certain names alone, and a clone may have any
    shutil.copytree(ROOT, app, ignore=shutil.ignore_patterns(".git", ".venv*", "outputs", "multirun"))
    flwr = Path(sys.executable).with_name("flwr")
    done = subprocess.run(
        [flwr, "build", "--app", app], cwd=folder, check=True, capture_output=True, text=True
    )
    (line,) = (done.stdout + done.stderr).strip().splitlines()  # and no advice what is missing
    assert "Successfully built" in line
    (fab,) = folder.glob("*.fab")
    with zipfile.ZipFile(fab) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_it_holds_the_whitelisted_files_and_no_others(bundle: Path) -> None:
    code = {
        path.relative_to(ROOT).as_posix()
        for folder, kind in KINDS.items()
        for path in (ROOT / folder).rglob("*" + kind)
    }
    assert len(code) > 50
    assert files_in(bundle) == code | {"pyproject.toml", "LICENSE", ".info/CONTENT"}


@pytest.mark.slow
def test_what_is_submitted_is_bundled_alike(bundle: Path, tmp_path: Path) -> None:
    """``copy_app`` takes the bundle's files out of a clone, byte for byte."""
    app = copy_app(tmp_path)
    written = {"pyproject.toml", ".info/CONTENT"}  # by Flower
    assert files_in(app) == files_in(bundle) - {".info/CONTENT"}
    for name in files_in(app) - written:
        assert (app / name).read_bytes() == (bundle / name).read_bytes()


@pytest.mark.slow
def test_it_says_what_flowers_hub_wants_to_know(bundle: Path) -> None:
    toml = tomllib.loads((bundle / "pyproject.toml").read_text())
    project, app = toml["project"], toml["tool"]["flwr"]["app"]
    assert project["description"]
    assert project["version"]
    assert (bundle / project["license"]["file"]).read_text()
    assert app["publisher"]


@pytest.mark.slow
def test_it_holds_no_tests(bundle: Path) -> None:
    assert not [name for name in files_in(bundle) if "test" in name.lower()]


@pytest.mark.slow
def test_its_code_is_known_by_the_same_hash(bundle: Path) -> None:
    """Servers and nodes compare hashes: the bundle's must be that of the checkout it was built from."""
    code = "from baselines.experiment.identity import ROOT, source_hash; print(ROOT, source_hash())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=bundle, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [str(bundle.resolve()), source_hash()]
