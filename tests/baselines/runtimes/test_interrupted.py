"""A run that is asked to end ends soon, says so, and leaves what it has."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from baselines.engine.loggers import Progress
from helpers.checkout import ROOT
from helpers.runs import curve, launch, metrics_in


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("number", "setting", "remedy"),
    [
        (signal.SIGINT, "checkpoint_every=1", "the same command with resume=true goes on"),
        (signal.SIGTERM, "resume=true checkpoint_every=1", "the same command goes on"),
        (
            signal.SIGHUP,
            "seed=0",
            "the same command with resume=true starts from round 1 "
            "(checkpoint_every=10 would let it go on)",
        ),
    ],
)
def test_in_process(
    number: signal.Signals,
    setting: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        Progress, "show", lambda self, r, metrics: os.kill(os.getpid(), number) if r == 2 else None
    )
    before = signal.signal(number, signal.SIG_DFL)  # as in the foreground of a terminal
    try:
        words = ["num_nodes=2", "rounds=500", "model=softmax", *setting.split()]
        assert launch(*words, f"hydra.run.dir={tmp_path}") == 130
    finally:
        signal.signal(number, before)
    assert capsys.readouterr().err == f"interrupted ({number.name}); {remedy}\n"
    assert json.loads((tmp_path / "environment.json").read_text())["status"] == "interrupted"
    assert max(metrics_in(tmp_path)["round"]) == 2


@pytest.mark.slow
def test_on_ray_after_a_worker_was_killed(tmp_path: Path) -> None:
    """Another worker takes its place: no node is lost, not even the one that it was working for."""
    setting = "num_nodes=3 rounds=100000 model=softmax threads=1 runtime=ray runtime.cpus=1 timeout=60"
    setting += " max_failed_rounds=1000000"
    command = [sys.executable, "-m", "baselines.run", *setting.split(), f"hydra.run.dir={tmp_path}"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        before = len(wait_for(process, tmp_path, lambda replies: len(replies) > 2))
        workers = workers_of(process.pid)
        assert len(workers) == 1, (tmp_path / "log").read_text()
        os.kill(workers[0], signal.SIGKILL)
        wait_for(process, tmp_path, lambda replies: len(replies) > before + 8 and set(replies) == {3.0})
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=300)
    finally:
        process.kill()
    assert status == 130, (tmp_path / "log").read_text()
    assert json.loads((tmp_path / "environment.json").read_text())["status"] == "interrupted"


def wait_for(
    process: subprocess.Popen[bytes], folder: Path, enough: Callable[[list[float]], bool]
) -> list[float]:
    """Return how many nodes replied, by round, when that is enough."""
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
        replies = curve(metrics_in(folder), "train", "replies") if (folder / "metrics.csv").exists() else []
        if enough(replies):
            return replies
    raise AssertionError((folder / "log").read_text()[-3000:])


def workers_of(driver: int) -> list[int]:
    """Return the worker processes of a driver's Ray."""
    workers = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            ours = os.getsid(int(path.parent.name)) == os.getsid(driver)
            if ours and path.read_bytes().startswith(b"ray::WorkerSlot"):
                workers.append(int(path.parent.name))
        except OSError:  # it has just ended
            continue
    return workers
