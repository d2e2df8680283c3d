"""--help of a command loads none of the libraries that take seconds."""

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


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compare", "inspect", "reproduce"])
def test_it_needs_no_torch(command: str) -> None:
    program = PROGRAM.replace("HEAVY", repr(HEAVY))
    arguments = [sys.executable, "-c", program, f"baselines.{command}"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: python -m baselines.{command}")
    assert done.stderr.splitlines()[-1] == "[]"
