"""What a command imports before it answers: each run of a sweep over processes pays for it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.checkout import ROOT

UNUSED = {"datasets", "flwr_datasets", "ray", "scipy", "sklearn", "torchvision", "torch._dynamo"}
LATE = {"matplotlib", "pandas"}  # after the last round, for the figure
HEAVY = {*UNUSED, *LATE, "torch", "flwr"}


def imported_by(*arguments: str) -> list[str]:
    """Return a command's output and what it imports, line by line, in order."""
    command = [sys.executable, "-X", "importtime", "-u", "-m", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return [re.sub(r"^import time: .*\| +", "", line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_run_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    lines = imported_by("baselines.run", "dataset=digits", "rounds=1", f"hydra.run.dir={tmp_path}")
    (first_round,) = (place for place, line in enumerate(lines) if line.startswith("round 1/1"))
    assert not UNUSED & {*lines}
    assert LATE & {*lines[first_round:]} == LATE
    assert not LATE & {*lines[:first_round]}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["inspect", "reproduce", "compare"])
def test_help_imports_nothing_heavy(command: str) -> None:
    assert not HEAVY & {*imported_by(f"baselines.{command}", "--help")}
