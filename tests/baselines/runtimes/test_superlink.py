"""What the superlink runtime tells Flower, and how it judges a run; test_same_metrics has a whole run."""

import json
import os
import tomllib
from pathlib import Path

import pytest
from filelock import FileLock

from baselines.engine.environment import git_commit
from baselines.errors import RunFailed, UserError
from baselines.runtimes import commands, superlink

pytestmark = pytest.mark.runtime


def test_the_run_configuration_carries_any_string(tmp_path: Path) -> None:
    overrides = """strategy=fedexp 'data_root=/a b/"c"\\d' +note='it''s {x: 1}' # \N{BLOSSOM} é\t\n'"""
    folder = tmp_path / 'run "1" \N{BLOSSOM}'
    read = tomllib.loads(commands.run_config(overrides, str(folder)))
    assert read == {"overrides": overrides, "output": str(folder), "commit": git_commit() or ""}
    server = commands.Server("superlink.org", "0.0.0.0", 8431, 9092)
    assert tomllib.loads(server.link("lakes")) == {
        "superlink": {"lakes": {"address": "superlink.org:8431", "insecure": True}}
    }
    (link,) = tomllib.loads(server.link("lakes", Path("ca.pem")))["superlink"].values()
    assert link == {"address": "superlink.org:8431", "root-certificates": str(Path("ca.pem").resolve())}


def test_programs_are_told_not_to_phone_home_or_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLORILEGIUM_DATA", "data")
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    environment = commands.environment("/home/of/flower")
    assert environment["FLWR_HOME"] == "/home/of/flower"
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert environment["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert environment["FLORILEGIUM_DATA"] == str(tmp_path / "data")
    first = Path(environment["PATH"].split(os.pathsep)[0])
    assert (first / "flower-superlink").exists()


@pytest.mark.slow
def test_a_wheel_has_no_app_to_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superlink, "ROOT", tmp_path / "site-packages")
    with pytest.raises(UserError, match=r"submits the project's folder.*pip install -e \."):
        superlink.SuperLink().run("rounds=1", 2, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_under_way_keeps_its_files(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text("its own")
    with FileLock(tmp_path / ".lock"), pytest.raises(UserError, match="another process is running in"):
        superlink.SuperLink().run("rounds=1", 2, tmp_path)
    assert (tmp_path / "environment.json").read_text() == "its own"
    assert not (tmp_path / "logs").exists()


def result_in(folder: Path, status: str | None) -> Path:
    path = folder / "environment.json"
    if status is not None:
        path.write_text(json.dumps({"status": status}))
    return path


@pytest.mark.parametrize(
    ("status", "in_flower", "message"),
    [
        ("failed: no node has connected", "finished:failed", "the run failed: no node has connected"),
        ("running", "finished:failed", "the run is running; Flower says finished:failed; the log"),
        ("finished", "finished:failed", "the run is finished; Flower says finished:failed; the log"),
        (
            "interrupted",
            "finished:stopped",
            "the run is interrupted; Flower says finished:stopped; the log",
        ),
        (None, "finished:completed", "the run is not begun; Flower says finished:completed; the log"),
    ],
)
def test_a_run_that_did_not_finish_is_an_error(
    status: str | None, in_flower: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RunFailed) as caught:
        superlink._check(result_in(tmp_path, status), b"", in_flower, "the log")
    assert str(caught.value) == message


def test_a_run_that_finished_is_none(tmp_path: Path) -> None:
    superlink._check(result_in(tmp_path, "finished"), b"", "finished:completed", "the log")


def test_a_run_that_has_diverged_is_judged_by_its_metrics(tmp_path: Path) -> None:
    superlink._check(result_in(tmp_path, "diverged"), b"", "finished:failed", "the log")


def test_an_earlier_runs_account_is_not_this_ones(tmp_path: Path) -> None:
    """It is left where it is until the new run begins, and does not count as its end."""
    result = result_in(tmp_path, "finished")
    with pytest.raises(RunFailed, match="the run is not begun"):
        superlink._check(result, result.read_bytes(), "finished:completed", "the log")
    assert result.exists()


def test_free_ports_are_free_and_differ() -> None:
    ports = superlink._free_ports(20)
    assert len(set(ports)) == 20
    assert min(ports) > 1023


def test_a_time_limit_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"runtime\.start_timeout=0"):
        superlink.SuperLink(start_timeout=0)


def test_signatures_need_encryption() -> None:
    with pytest.raises(ValueError, match=r"runtime\.tls=False.*true where runtime\.authenticate=true"):
        superlink.SuperLink(authenticate=True)
