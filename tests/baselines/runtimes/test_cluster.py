"""Ray clusters: machines that come and go change no number, and need no checkout."""

import ast
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ray._common.usage.usage_constants import CLUSTER_METADATA_KEY
from ray._private.ray_constants import KV_NAMESPACE_CLUSTER
from ray._raylet import GcsClient
from ray.cluster_utils import Cluster

from baselines.errors import UserError
from baselines.runtimes.ray_cluster import PATIENCE, _is_ray
from helpers.checkout import ROOT
from helpers.runs import launch

pytestmark = pytest.mark.slow

# SCAFFOLD, because its variates live in the nodes' states from round to round.
SETTING = "strategy=scaffold partitioner=dirichlet num_nodes=4 seed=3 model=softmax"
HANGS = 600  # seconds after which a run hangs; a busy machine takes minutes for what takes seconds
# Not the program `ray`: an environment that borrows Ray from another one has no such file.
RAY = f"{sys.executable} -m ray.scripts.scripts"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster whose head has one processor; a test leaves it as it was, but for more machines."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    yield cluster
    cluster.shutdown()


def rows_in(folder: Path) -> list[str]:
    """Return metrics.csv without the rows that are times."""
    return [row for row in (folder / "metrics.csv").read_text().splitlines() if "seconds" not in row]


def started(folder: Path, *overrides: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    command = [
        sys.executable,
        "-m",
        "baselines.run",
        *SETTING.split(),
        *overrides,
        f"hydra.run.dir={folder}",
    ]
    with open(folder / "log", "wb") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)


def wait_until(done: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + HANGS
    while not done():
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.1)


def rounds_in(folder: Path) -> int:
    path = folder / "metrics.csv"
    rows = path.read_text().splitlines()[1:] if path.exists() else []
    return int(rows[-1].split(",")[0]) if rows else 0


def expected(folder: Path, rounds: int) -> list[str]:
    assert launch(*SETTING.split(), f"rounds={rounds}", f"hydra.run.dir={folder}") == 0
    return rows_in(folder)


def test_machines_that_go_and_come_change_no_number(cluster: Cluster, tmp_path: Path) -> None:
    rounds, folder = 150, tmp_path / "ray"
    second = cluster.add_node(num_cpus=1)
    run = started(folder, f"rounds={rounds}", "runtime=ray", f"runtime.address={cluster.address}")
    wait_until(lambda: rounds_in(folder) > 10, folder)
    cluster.remove_node(second, allow_graceful=False)
    lost_at = rounds_in(folder)
    wait_until(lambda: rounds_in(folder) > lost_at + 5, folder)
    cluster.add_node(num_cpus=1)
    assert run.wait(timeout=HANGS) == 0, (folder / "log").read_text()
    assert rows_in(folder) == expected(tmp_path / "inline", rounds)
    assert json.loads((folder / "environment.json").read_text())["status"] == "finished"


def may_hide() -> bool:
    """Say whether a program may be given mounts of its own."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not may_hide(), reason="hiding the checkout takes root, to mount a folder over it")
def test_a_machine_without_the_checkout(tmp_path: Path) -> None:
    """The head has no processor, so that all work is done where the code is not."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    hide = "; ".join(
        f"mount -t tmpfs none {ROOT / name}" for name in ("baselines", "clients", "strategies", "conf")
    )
    join = f"cd /; {RAY} start --address={cluster.address} --num-cpus=2 --block"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with open(tmp_path / "log", "wb") as log:
        other = subprocess.Popen(
            ["unshare", "--mount", "bash", "-c", f"{hide}; {join}"],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    folder = tmp_path / "ray"
    try:
        wait_until(lambda: _processors(cluster) == 2, tmp_path)
        run = started(folder, "rounds=3", "runtime=ray", f"runtime.address={cluster.address}")
        assert run.wait(timeout=HANGS) == 0, (folder / "log").read_text()
    finally:
        os.killpg(other.pid, 15)
        cluster.shutdown()
    assert rows_in(folder) == expected(tmp_path / "inline", 3)


@pytest.mark.parametrize(
    ("what", "remote"), [("ray_version", "2.1.0"), ("python_version", "3.9.1")], ids=["Ray", "Python"]
)
def test_a_cluster_of_another_version_is_named_in_one_line(
    what: str, remote: str, cluster: Cluster, tmp_path: Path
) -> None:
    """The head is of this Ray and Python, and made to say something else, as a head of another would."""
    client = GcsClient(address=cluster.address)
    key, room = CLUSTER_METADATA_KEY, KV_NAMESPACE_CLUSTER
    versions = json.loads(client.internal_kv_get(key, namespace=room))
    assert what in versions
    client.internal_kv_put(key, json.dumps(versions | {what: remote}).encode(), True, namespace=room)
    folder = tmp_path / "ray"
    try:
        run = started(folder, "rounds=1", "runtime=ray", f"runtime.address={cluster.address}")
        assert run.wait(timeout=HANGS) == 2
    finally:
        client.internal_kv_put(key, json.dumps(versions).encode(), True, namespace=room)
    (line,) = [one for one in (folder / "log").read_text().splitlines() if one.startswith("error: ")]
    assert line.startswith(f"error: runtime.address={cluster.address}: ")
    assert remote in line
    assert "Traceback" not in (folder / "log").read_text()


def test_a_machine_on_which_ray_starts_slowly_is_no_reason_to_refuse_a_cluster(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has to answer in time is the cluster, not the program that asks it."""
    slow = f"import sys, time; time.sleep({PATIENCE + 3} if 'health-check' in sys.orig_argv else 0)"
    (tmp_path / "sitecustomize.py").write_text(slow)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    began = time.monotonic()
    _is_ray(cluster.address)
    assert time.monotonic() - began > PATIENCE + 3


def test_an_address_where_something_else_listens_is_named_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UserError) as error:
            _is_ray(address)
    assert str(error.value).startswith(f"runtime.address={address}: no Ray cluster answered")


def test_a_ray_that_cannot_be_asked_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baselines.runtimes.ray_cluster.PROBE_SECONDS", 0.01)
    with pytest.raises(UserError, match=r"^runtime.address=127.0.0.1:1: Ray did not answer within 0.01 s$"):
        _is_ray("127.0.0.1:1")


def _processors(cluster: Cluster) -> float:
    """Return how many processors the cluster has, asked by a program of its own."""
    code = (
        f"import ray; ray.init('{cluster.address}', logging_level='ERROR'); print(ray.cluster_resources())"
    )
    count = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout
    return float(ast.literal_eval(count.splitlines()[-1]).get("CPU", 0)) if count else 0


def test_a_resumed_run_has_the_numbers_of_one_in_one_go(tmp_path: Path) -> None:
    where = [*SETTING.split(), "runtime=ray", "runtime.cpus=2", f"hydra.run.dir={tmp_path / 'ray'}"]
    assert launch(*where, "rounds=2", "checkpoint_every=1") == 0
    assert launch(*where, "rounds=4", "checkpoint_every=1", "resume=true") == 0
    assert rows_in(tmp_path / "ray") == expected(tmp_path / "inline", 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("runtime.address=127.0.0.1:1", "runtime.address=127.0.0.1:1: nobody answers there"),
        ("runtime.address=nowhere", "expected host:port"),
        ("runtime.address=ray://127.0.0.1:10001", "start the run on a machine of the cluster"),
        ("runtime.address=auto runtime.cpus=2", "runtime.cpus=2 with runtime.address=auto"),
        ("runtime.client_gpus=99 runtime.cpus=1", "runtime.client_gpus=99 is more than any machine has"),
        ("runtime.code=here", "runtime.code=here is out of range: expected staged or installed"),
    ],
)
def test_a_mistake_is_one_line(
    settings: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert launch("model=softmax", "runtime=ray", *settings.split(), f"hydra.run.dir={tmp_path}") == 2
    (line,) = [one for one in capfd.readouterr().err.splitlines() if one.startswith("error: ")]
    assert message in line
    assert time.monotonic() - began < 60
