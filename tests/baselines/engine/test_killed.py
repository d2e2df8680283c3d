"""A run that is killed again and again ends in the same files as one that is not."""

import json
import random
import time
from pathlib import Path

import pytest

from helpers.runs import lines_in, process_of


@pytest.mark.slow
def test_killed_ten_times(tmp_path: Path) -> None:
    """SIGKILL at random moments; what is left of SCAFFOLD goes on as if nothing had happened."""
    overrides = [
        "strategy=scaffold",
        "num_nodes=4",
        "nodes_per_round=3",
        "rounds=100",
        "checkpoint_every=4",
    ]
    overrides += ["model=softmax", "client.batch_size=64", "threads=1"]
    finish(tmp_path / "log", *overrides, f"hydra.run.dir={tmp_path}/whole")
    draw = random.Random(7)
    arguments = [*overrides, "resume=true", f"hydra.run.dir={tmp_path}/parts"]
    for _ in range(10):
        kill(tmp_path, arguments, draw.randint(1, 13), draw.uniform(0, 0.05))
    finish(tmp_path / "log", *arguments)
    assert lines_in(tmp_path / "parts") == lines_in(tmp_path / "whole")
    rounds = [line.split(",")[0] for line in lines_in(tmp_path / "parts") if ",train,global,loss," in line]
    assert rounds == [str(server_round) for server_round in range(1, 101)]
    environment = json.loads((tmp_path / "parts" / "environment.json").read_text())
    assert len(environment["resumed"]) >= 5  # most of them after a checkpoint


def finish(log: Path, *arguments: str) -> None:
    process = process_of(log, *arguments)
    process.join()
    assert process.exitcode == 0, log.read_text()


def kill(folder: Path, arguments: list[str], rounds: int, seconds: float) -> None:
    """Start a process, and kill it so many seconds after it has gone so many rounds on."""
    metrics = folder / "parts" / "metrics.csv"
    before = last_round(metrics)
    process = process_of(folder / "log", *arguments)
    while process.is_alive() and last_round(metrics) < before + rounds:
        time.sleep(0.005)
    time.sleep(seconds)
    process.kill()
    process.join()


def last_round(metrics: Path) -> int:
    """Return the round of the last row that is whole; 0 before there is one."""
    lines = metrics.read_text().split("\n")[1:-1] if metrics.exists() else []
    return int(lines[-1].split(",")[0]) if lines else 0
