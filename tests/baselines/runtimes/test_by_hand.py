"""docs/deployment.md, "By hand": its commands as they stand there, but for the ports."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from baselines.runtimes.commands import fleet_is_grpc
from baselines.runtimes.staging import copy_app
from baselines.runtimes.superlink import _free_ports
from helpers.checkout import ROOT

pytestmark = [pytest.mark.runtime, pytest.mark.slow]
SECTION = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8").split("## By hand\n")[1]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", SECTION, flags=re.M | re.S)
COMMANDS = [
    [line.removeprefix("$ ") for line in text.replace("\\\n", " ").splitlines()]
    for kind, text in BLOCKS
    if kind == "console"
]


def with_own_ports() -> list[list[str]]:
    """Return the blocks' commands with free ports, for this Flower, as the page says."""
    text = "\n\n".join("\n".join(block) for block in COMMANDS)
    if not fleet_is_grpc():
        text = text.replace(" --fleet-api-address 127.0.0.1:9092", "").replace(":9092", ":8431")
    ports = sorted(set(re.findall(r"(?:127\.0\.0\.1:|--port )(\d+)", text)))
    for port, free in zip(ports, _free_ports(len(ports)), strict=True):
        text = re.sub(rf"\b{port}\b", str(free), text)
    return [block.split("\n") for block in text.split("\n\n")]


@pytest.fixture
def env(reader: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Return a reader's environment after the page's first line, with a folder of its own for outputs."""
    (first, *_), *_ = COMMANDS
    assert first.startswith("export ")
    variables = dict(pair.split("=") for pair in first.removeprefix("export ").split())
    return reader | variables | {"FLORILEGIUM_OUTPUTS": str(tmp_path)}


@pytest.fixture
def programs(env: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """Start what the page starts; yield the command that submits the experiment."""
    (_, *started), (submit,), _ = with_own_ports()
    (toml,) = [text for kind, text in BLOCKS if kind == "toml"]
    control = re.findall(r"--port (\d+)", started[0])[0]
    (tmp_path / "flwr").mkdir()
    (tmp_path / "flwr" / "config.toml").write_text(toml.replace("8431", control))
    running = [
        subprocess.Popen(
            command,
            shell=True,
            cwd=ROOT,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for command in started
    ]
    yield submit
    for program in running:
        os.killpg(program.pid, signal.SIGTERM)
        program.wait(30)


def ran(command: str, env: dict[str, str], tmp_path: Path) -> None:
    """Run a command in a clone, but for the environments, of which Flower would look at each file."""
    app = copy_app(tmp_path / "app")
    run = subprocess.run(command, shell=True, cwd=app, env=env, capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stdout + run.stderr
    metrics = tmp_path / "run" / "metrics.csv"
    assert metrics.exists(), run.stdout + run.stderr
    assert "\n3,test,average,accuracy," in metrics.read_text()


def test_the_simulation_runs(env: dict[str, str], tmp_path: Path) -> None:
    *_, (simulation,) = COMMANDS
    ran(simulation, env, tmp_path)


def test_the_deployment_runs(programs: str, env: dict[str, str], tmp_path: Path) -> None:
    time.sleep(5)  # a SuperLink takes a moment to listen
    ran(programs, env, tmp_path)
