"""Ray that starts ahead: a mistake is answered in seconds, and leaves no Ray behind."""

import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from baselines.runtimes import Ray
from baselines.runtimes.ray import RayPrestart
from helpers.checkout import ROOT

MARK = "FLORILEGIUM_TEST_AHEAD"


def marked(mark: str) -> list[str]:
    """Return the commands of the processes that were started with this mark in their environment."""
    marks = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}\0".encode() in (folder / "environ").read_bytes() + b"\0":
                marks.append((folder / "cmdline").read_text().replace("\0", " ")[:200])
        except OSError:  # it has ended, or is another user's
            continue
    return marks


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")
def test_a_mistake_is_one_line_within_seconds_and_leaves_no_ray(tmp_path: Path) -> None:
    mark = str(tmp_path)
    command = [sys.executable, "-m", "baselines.run", "runtime=ray", "mask=agreement", "mask.tau=7"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, f"hydra.run.dir={tmp_path}"],
        cwd=ROOT,
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["error: mask.tau=7 is out of range: expected in [0, 1]"]
    assert time.monotonic() - began < 60  # five seconds on a machine that has nothing else to do
    deadline = time.monotonic() + 60
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": "auto"},
        {"cpus": 0},
        {"cpus": "many"},
        {"client_cpus": -1},
        {"client_cpus": None},
        {"client_gpus": "all"},
    ],
    ids=str,
)
def test_what_looks_wrong_starts_nothing(wrong: dict[str, object]) -> None:
    settings = {"cpus": None, "client_cpus": 1, "client_gpus": 0, "address": None}
    assert isinstance(Ray.begin(2, settings | wrong), nullcontext)


def test_what_ray_fails_with_is_raised_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("no room for Ray")

    monkeypatch.setattr("baselines.runtimes.ray.import_ray", fails)
    with RayPrestart(1, 1.0, 0.0, 1) as begun, pytest.raises(RuntimeError, match="no room for Ray"):
        begun.ready()


@pytest.mark.slow
def test_neither_torch_nor_ray_is_imported_before_ray_can_start() -> None:
    code = (
        "import sys, baselines.run; from hydra.utils import get_class; "
        "get_class('baselines.runtimes.Ray').begin; "
        "print([name for name in ('torch', 'ray', 'flwr', 'sklearn', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
