"""florilegium COMMAND: as python -m baselines.COMMAND; and a wheel that works from another folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from baselines import __main__ as florilegium
from baselines import run
from baselines.errors import UserError
from baselines.runtimes import commands
from helpers.checkout import ROOT


def test_it_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert florilegium.main(["--help"]) == 0
    assert florilegium.main([]) == 2
    listed = capsys.readouterr().out
    assert all(listed.count(f"    {name} ") >= 2 for name in florilegium.COMMANDS)


@pytest.mark.parametrize(
    ("name", "message"),
    [("compaer", "did you mean compare?"), ("train", "expected run, compare, new, inspect")],
)
def test_another_command_is_one_line(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert florilegium.main([name, "seed=0"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: florilegium {name}: no such command; {message}")
    assert captured.err.count("\n") == 1


def test_it_hands_the_arguments_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(sys, "argv", ["florilegium"])
    monkeypatch.setattr(run, "main", lambda: calls.append(sys.argv[1:]) or 130)
    assert florilegium.main(["run", "-m", "seed=0,1"]) == 130
    assert calls == [["-m", "seed=0,1"]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", florilegium.COMMANDS)
def test_every_command_is_one(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["florilegium"])
    try:
        status = florilegium.main([name, "--help"])
    except SystemExit as stop:
        status = int(stop.code or 0)
    assert status == 0
    assert {"run": "Compose your configuration"}.get(name, "--help") in capsys.readouterr().out


def test_a_wheel_has_no_app_to_submit(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"federation submit submits .* this is a wheel"):
        commands.require_app(tmp_path, "federation submit")
    commands.require_app(ROOT, "federation submit")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which the wheel was installed, without what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = [*pip, "wheel", "--no-deps", "--wheel-dir", str(folder / "dist"), str(ROOT)]
    build = subprocess.run(built, capture_output=True, text=True, check=False)
    if "No matching distribution found for hatchling" in build.stderr:
        pytest.skip("there is no index from which pip takes hatchling, which builds the wheel")
    assert build.returncode == 0, build.stderr
    (wheel,) = (folder / "dist").glob("florilegium-*.whl")
    target = folder / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True)
    return target


def florilege(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(installed / "bin" / "florilegium"), *words]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_wheel_works_from_another_folder(installed: Path, tmp_path: Path) -> None:
    sweep = ("-m", "seed=0,1", "rounds=1", "num_nodes=3", "model=softmax", "hydra.sweep.dir=mine")
    swept = florilege(installed, tmp_path, "run", *sweep)
    assert swept.returncode == 0, swept.stderr
    compared = florilege(installed, tmp_path, "compare", "mine")
    assert compared.returncode == 0, compared.stderr
    assert "mean ± std over seeds" in compared.stdout
    for words in (("inspect", "num_nodes=3"), ("reproduce",), ("federation", "--help")):
        assert florilege(installed, tmp_path, *words).returncode == 0
    refused = florilege(installed, tmp_path, "run", "runtime=superlink", "rounds=1")
    assert refused.returncode == 2
    assert "this is a wheel" in refused.stderr


@pytest.mark.slow
def test_a_wheel_tells_its_types(installed: Path) -> None:
    typed = {path.parent.name for path in installed.glob("*/py.typed")}
    assert typed == {"strategies", "clients", "baselines"}
