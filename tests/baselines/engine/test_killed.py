"""A run that is killed again and again ends in the same files as one that is not."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import ROOT
from runs import lines_in


@pytest.mark.slow
def test_killed_ten_times(tmp_path: Path) -> None:
    """SIGKILL at random moments; what is left of SCAFFOLD goes on as if nothing had happened."""
    overrides = [
        "strategy=scaffold",
        "num_nodes=4",
        "nodes_per_round=3",
        "rounds=300",
        "checkpoint_every=7",
    ]
    overrides += ["model=softmax", "client.batch_size=64", "threads=1"]
    command = [sys.executable, "-m", "baselines.run", *overrides]
    subprocess.run([*command, f"hydra.run.dir={tmp_path}/whole"], cwd=ROOT, check=True, capture_output=True)
    draw = random.Random(7)
    command += ["resume=true", f"hydra.run.dir={tmp_path}/parts"]
    for _ in range(10):
        kill(command, tmp_path / "parts" / "metrics.csv", draw.randint(1, 40), draw.uniform(0, 0.05))
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert lines_in(tmp_path / "parts") == lines_in(tmp_path / "whole")
    rounds = [line.split(",")[0] for line in lines_in(tmp_path / "parts") if ",train,global,loss," in line]
    assert rounds == [str(server_round) for server_round in range(1, 301)]
    environment = json.loads((tmp_path / "parts" / "environment.json").read_text())
    assert len(environment["resumed"]) >= 5  # most of them after a checkpoint


def kill(command: list[str], metrics: Path, rounds: int, seconds: float) -> None:
    """Start a process, and kill it so many seconds after it has gone so many rounds on."""
    before = last_round(metrics)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and last_round(metrics) < before + rounds:
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()


def last_round(metrics: Path) -> int:
    """Return the round of the last row that is whole; 0 before there is one."""
    lines = metrics.read_text().split("\n")[1:-1] if metrics.exists() else []
    return int(lines[-1].split(",")[0]) if lines else 0
