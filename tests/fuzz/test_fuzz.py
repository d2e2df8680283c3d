"""Random input to the commands: right results, or one line that helps (scripts/fuzz: thousands)."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.fuzz import configurations
from helpers.fuzz.campaign import attempt

ROOT = Path(__file__).resolve().parents[2]
BLOCK = 8  # tries in one test
BLOCKS = {"configurations": 4, "explicit": 2, "damaged": 3, "data": 3, "arguments": 3, "hostile": 4}
PARTS = [(kind, part) for kind, count in BLOCKS.items() for part in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_every_try_ends_as_promised(kind: str, part: int) -> None:
    tries = [attempt(kind, 0, place) for place in range(part * BLOCK, (part + 1) * BLOCK)]
    faults = [f"{one.command}\n    {one.fault}" for one in tries if one.fault]
    assert not faults, "\n".join(faults)


@pytest.mark.slow
@pytest.mark.parametrize("place", [3, 5, 14])
def test_a_process_of_its_own_ends_as_this_one(place: int, tmp_path: Path) -> None:
    here = attempt("configurations", 0, place)
    assert here.outcome != configurations.CHECKED, "choose another place: this one is not run here"
    words = [sys.executable, *shlex.split(here.command)[1:], f"hydra.run.dir={tmp_path}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert str(done.returncode) == here.outcome[0], done.stderr
    assert done.stderr.count("\n") == (done.returncode == 2)
