"""--help of a command loads none of the libraries that take seconds."""

import os
import subprocess
import sys

import pytest

from helpers.checkout import ROOT

HEAVY = ("torch", "pandas", "matplotlib", "flwr", "sklearn")
PROGRAM = """
import runpy, sys
sys.argv = [sys.argv[1], "--help"]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
finally:
    print([name for name in HEAVY if name in sys.modules], file=sys.stderr)
"""


OF_FEDERATION = ("schema", "check", "audit", "provision", "register", "submit", "card")
COMMANDS = (
    *("bench", "bench.gpu", "compare", "inspect", "new", "predict", "reproduce", "federation"),
    *(f"federation {name}" for name in OF_FEDERATION),
)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_it_fits_the_terminal(command: str) -> None:
    """Of what is below the usage, only a command to copy may be longer than the terminal is wide."""
    words, columns = [sys.executable, "-m", *f"baselines.{command} --help".split()], 50
    place = os.environ | {"COLUMNS": str(columns)}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, env=place)
    usage, description, *_ = done.stdout.split("\n\n")
    assert len(description.split()) > 3
    assert max(map(len, description.splitlines())) <= columns
    text = done.stdout.removeprefix(usage).splitlines()
    assert [line for line in text if len(line) > (80 if line.startswith("    ") else columns)] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compare", "inspect", "reproduce"])
def test_it_needs_no_torch(command: str) -> None:
    program = PROGRAM.replace("HEAVY", repr(HEAVY))
    arguments = [sys.executable, "-c", program, f"baselines.{command}"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: python -m baselines.{command}")
    assert done.stderr.splitlines()[-1] == "[]"
