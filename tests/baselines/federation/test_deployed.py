"""A federation as institutions have one, on the loopback: TLS, keys, data of their own, failures."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from baselines.experiment.overrides import ROOT
from baselines.federation.__main__ import main
from baselines.federation.agreed import read
from baselines.runtimes import credentials, sites
from baselines.runtimes.superlink import _free_ports
from helpers.deployed import Deployed, deployed, wait_until
from helpers.runs import launch, lines_in

pytestmark = pytest.mark.slow  # on the newest Flower only what costs no run
STRANGERS = ("stranger", "keyless", "misled", "plain")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Return a federation that has been deployed, and four strangers knocking."""
    with deployed(tmp_path_factory.mktemp("federation")) as federation:
        _knock(federation)
        yield federation


def _knock(federation: Deployed) -> None:
    """Start SuperNodes that nobody let in: another's key, no key, a wrong CA, a plain connection."""
    server, folder = read(federation.file).server, federation.folder / "strangers"
    credentials.key_pair(folder / "key")
    credentials.authority(folder)
    ca, key = str(federation.made / "north" / "ca.pem"), str(folder / "key")
    own = str(federation.made / "odd" / "key")  # a key that is registered does not help
    keys_by_name = {"stranger": (ca, key), "keyless": (ca, None), "misled": (str(folder / "ca.pem"), own)}
    keys_by_name["plain"] = (None, None)
    for (name, (root, signed)), port in zip(
        keys_by_name.items(), _free_ports(len(keys_by_name)), strict=True
    ):
        command = server.supernode(sites.node_config(name, "/nowhere"), port, root, signed)
        federation.programs.start(name, command)


def _refused(federation: Deployed, name: str) -> bool:
    """Say whether a program has been turned away at least twice, and never let in."""
    log = (federation.programs.logs / f"{name}.log").read_text()
    assert "SuperNode ID" not in log
    return log.count("Connection attempt failed") >= 2


@pytest.mark.runtime
def test_strangers_are_refused(federation: Deployed) -> None:
    for name in STRANGERS:
        wait_until(lambda name=name: _refused(federation, name))
        federation.kill(name)
    wait_until(lambda: list(federation.statuses().values()) == ["online"] * 3)
    known = json.loads((federation.made / "operator" / "registered.json").read_text())
    assert set(federation.statuses()) == {node["node_id"] for node in known.values()}


def test_a_run_outlives_who_submitted_it_and_resumes_after_its_serverapp_and_its_superlink(
    federation: Deployed, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each round is its own: 1 with its submitter, 2 without, 3 after the ServerApp's end, 4 after all's."""
    output, overrides = federation.folder / "out", ("rounds=4", "evaluate_every=4")
    command = [sys.executable, "-m", "baselines.federation", *federation.submission("out", *overrides)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True
    ) as submitter:
        wait_until(lambda: _has_trained(output, 1))
        os.killpg(submitter.pid, signal.SIGKILL)  # its terminal is closed
    wait_until(lambda: _has_trained(output, 2))
    federation.kill_server_app()
    assert not _has_trained(output, 3)  # it has not finished
    with ThreadPoolExecutor() as pool:
        second = pool.submit(federation.submit, "out", *overrides, "resume=true")
        wait_until(lambda: _has_trained(output, 3))
        federation.kill("superlink")
        federation.start("superlink")
        assert second.result() == 1
    assert not _has_trained(output, 4)
    assert federation.submit("out", *overrides, "resume=true") == 0
    assert "site odd takes no part: schema: 1 label" in capfd.readouterr().out
    assert launch(*_inline(federation, tmp_path), *overrides) == 0
    assert lines_in(output) == lines_in(tmp_path)
    environment = json.loads((output / "environment.json").read_text())
    assert list(environment["contributions"]) == ["site north", "site south"]
    assert len(environment["resumed"]) == 2


def _has_trained(folder: Path, server_round: int) -> bool:
    """Say whether a round's training is written down."""
    metrics = folder / "metrics.csv"
    return metrics.exists() and f"\n{server_round},train" in metrics.read_text()


def _inline(federation: Deployed, folder: Path) -> list[str]:
    """Return the overrides of the same experiment in this process."""
    who = ",".join(f"{name}:'{federation.folder / name}.npz'" for name in ("north", "south"))
    return [*federation.experiment(), f"runtime.sites={{{who}}}", f"hydra.run.dir={folder}"]


def test_a_mistake_that_only_the_server_sees_ends_with_2(
    federation: Deployed, capfd: pytest.CaptureFixture[str]
) -> None:
    assert federation.submit("out", "rounds=4", "evaluate_every=4", "resume=true", "seed=5") == 2
    out, err = capfd.readouterr()
    assert "Traceback" not in out
    assert len(err.splitlines()) == 1


def test_a_revoked_site_is_refused_and_one_killed_in_a_round_comes_back(
    federation: Deployed, capfd: pytest.CaptureFixture[str]
) -> None:
    agreed = federation.file.read_text()
    federation.file.write_text(agreed.replace("odd: {", "odd: {revoked: true, "))
    assert main(["register", str(federation.file)]) == 0
    assert "odd: revoked" in capfd.readouterr().out
    federation.kill("odd")
    federation.start("odd")
    wait_until(lambda: _refused(federation, "odd"))
    quorum = ["num_nodes=2", "quorum=1", "round_deadline=60", "rounds=5", "evaluate_every=5"]
    log, metrics = federation.programs.logs / "south.log", federation.folder / "quorum" / "metrics.csv"
    before = log.read_text().count("train message")
    with ThreadPoolExecutor() as pool:
        run = pool.submit(federation.submit, "quorum", *quorum)
        wait_until(lambda: log.read_text().count("train message") > before)
        federation.kill("south")
        wait_until(lambda: metrics.exists() and "\n1,train,global,replies" in metrics.read_text())
        federation.bring_back("south")
        assert run.result() == 0
    rows = metrics.read_text().splitlines()
    assert "1,train,global,replies,1.0" in rows  # without it, and without a failure
    assert "5,train,global,replies,2.0" in rows  # it is back
    node = json.loads((federation.made / "operator" / "registered.json").read_text())["south"]["node_id"]
    assert f"SuperNode ID: {node}" in log.read_text()  # the same node as before
