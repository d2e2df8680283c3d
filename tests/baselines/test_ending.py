"""What a program of ours does when it ends."""

import subprocess
import sys

from helpers.checkout import ROOT


def test_a_program_that_ends_does_not_look_for_garbage() -> None:
    """What is registered first is called last: by then all objects are kept from the collector."""
    code = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0)); import baselines"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "True\n"
